"""Schedules about what a server keeps: sequences of several kinds, bounds, a few tokens.

Only for engines that keep the cache at the end of each piece, and report what they keep.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Request, Schedule
from conformance.scenarios.build import SHORT, TWO, begun_otherwise, one_by_one
from conformance.scenarios.scenario import Brief

# Tokens of a system prompt, and of an output.
_SYSTEM, _FEW = 16, 2


def schedules(brief: Brief) -> list[Schedule]:
    """Conversations of three pieces, kept in kinds of their own: there is room for some of them.

    The last of them come once more. Bounded by number and by bytes; and some of a few tokens.
    """
    if not {Capability.SEGMENTS, Capability.STORED} <= brief.capabilities:
        return []
    system = brief.prompt(_SYSTEM)
    turns = [brief.prompt(SHORT, variant=8 + number) for number in range(4)]
    asked = [(system, turns[0]), (system, turns[1]), (turns[2], turns[0]), (system, turns[0])]
    requests = [
        Request(f"r{place}", sum(pieces, ()), _FEW, segments=tuple(map(len, pieces)))
        for place, pieces in enumerate((*first, turns[3]) for first in asked)
    ]
    # A prompt that parts from others after their first piece, and one that goes on from another.
    requests.append(Request("shorter", (*system, turns[2][0]), _FEW))
    requests.append(Request("longer", (*requests[1].prompt, *turns[2]), _FEW))
    bounds = {"by_number": PrefixCaching(snapshots=3), "by_bytes": PrefixCaching(times_first=2.5)}
    made = {name: EngineOptions(prefix_caching=bound) for name, bound in bounds.items()}
    return [*(one_by_one(name, requests, made[name]) for name in made), _of_few(brief)]


def _of_few(brief: Brief) -> Schedule:
    """Sequences of a few tokens, kept in pieces, and prompts that share one or two tokens."""
    first = brief.prompt(SHORT)
    pieces = (2, SHORT - 2)
    other = begun_otherwise(brief, brief.prompt(TWO, variant=3), first[1:2])
    third = begun_otherwise(brief, brief.prompt(TWO, variant=4), first[2:3])
    requests = [
        Request("few", first, _FEW, segments=pieces),
        Request("of_one", first[:1] + other, _FEW),
        Request("of_two", first[:2] + third, _FEW),
    ]
    return one_by_one("of_few", requests, EngineOptions(prefix_caching=PrefixCaching()))
