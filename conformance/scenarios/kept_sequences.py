"""Schedules for a server's sequence store: sequences of several kinds, limits, a few tokens.

Only for engines that keep the cache at the end of each piece.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.schedule import Request, Schedule
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    begun_otherwise,
    gone,
    one_by_one,
    text_request,
    together,
    unlike,
)
from conformance.scenarios.scenario import Brief

# Tokens of a system prompt, and of an output.
_SYSTEM, _FEW = 16, 2


def schedules(brief: Brief) -> list[Schedule]:
    """All schedules that the engine can run; more if it reports the store's content."""
    if Capability.SEGMENTS not in brief.capabilities:
        return []
    found = [_no_room(brief), _first_pieces(brief)]
    if Capability.STORED in brief.capabilities:
        found += [*_bounded(brief), _of_few(brief)]
    return found


def _bounded(brief: Brief) -> list[Schedule]:
    """Conversations of three pieces, stored with different kinds; only some of them fit.

    The last of them are repeated. The limit is a number or bytes.
    """
    system = brief.prompt(_SYSTEM)
    turns = [brief.prompt(SHORT, variant=8 + number) for number in range(4)]
    asked = [(system, turns[0]), (system, turns[1]), (turns[2], turns[0]), (system, turns[0])]
    requests = [
        Request(f"r{place}", sum(pieces, ()), _FEW, segments=tuple(map(len, pieces)))
        for place, pieces in enumerate((*first, turns[3]) for first in asked)
    ]
    # A prompt that differs from others after their first piece, and one that continues another.
    requests.append(Request("shorter", (*system, turns[2][0]), _FEW))
    requests.append(Request("longer", (*requests[1].prompt, *turns[2]), _FEW))
    bounds = {"by_number": PrefixCaching(snapshots=3), "by_bytes": PrefixCaching(times_first=2.5)}
    made = {name: EngineOptions(prefix_caching=bound) for name, bound in bounds.items()}
    return [one_by_one(name, requests, made[name]) for name in made]


def _no_room(brief: Brief) -> Schedule:
    """Two requests store the same sequence. The next one may reuse it, and evicts it."""
    names = ("twin", "other_twin", "again", "last")
    twin, other, again, last = (
        text_request(brief, name, MEDIUM, max_tokens=_FEW) for name in names
    )
    arrivals = (
        together(twin, other),
        together(again, when=gone("twin")),
        together(last, when=gone("again")),
    )
    options = EngineOptions(prefix_caching=PrefixCaching(max_bytes=0))
    return Schedule("no_room", arrivals, options=options)


def _first_pieces(brief: Brief) -> Schedule:
    """Caches kept at the end of the first pieces of two prompts that are prefilled together.

    Two prompts begin with one of them each; if caches can't be cut, nothing else can be reused.
    """
    one = text_request(brief, "one", LONG, max_tokens=_FEW, segments=(_SYSTEM, LONG - _SYSTEM))
    prompt = unlike("other", brief.prompt(LONG, variant=1), one, brief=brief).prompt
    other = Request("other", prompt, _FEW, segments=(_SYSTEM - 2, LONG - _SYSTEM + 2))
    again = []
    for request in (one, other):
        kept, after = request.prompt[: request.segments[0]], request.prompt[request.segments[0]]
        own = begun_otherwise(brief, brief.prompt(SHORT, variant=7), (after,))
        again.append(Request(f"like_{request.request_id}", kept + own, 3))
    arrivals = (together(one, other), together(*again, when=gone("other")))
    options = EngineOptions(prefix_caching=PrefixCaching())
    return Schedule("first_pieces", arrivals, options=options)


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
