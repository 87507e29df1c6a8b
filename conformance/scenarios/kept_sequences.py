"""Schedules of prefix caching for engines that keep whole sequences: prompts and their answers."""

from __future__ import annotations

from conformance.engine import Capability
from conformance.scenarios.base import Brief
from conformance.scenarios.build import LONG, MEDIUM, ask, gone, together
from conformance.schedule import EngineOptions, PrefixCaching, Request, Schedule

FEW = 2  # output tokens


def kept_sequences(brief: Brief) -> list[Schedule]:
    """For engines that take prompts in pieces and keep them by their ends; none for others."""
    if Capability.SEGMENTS not in brief.capabilities:
        return []
    return [_resumed(brief), _no_room(brief)]


def _resumed(brief: Brief) -> Schedule:
    """The prompt and all of its answer, to be gone on from: a kept sequence, to the last token."""
    options = EngineOptions(prefix_caching=PrefixCaching())
    first = ask(brief, "first", LONG, max_tokens=FEW)
    answer = brief.solo(first, options).tokens
    resumed = Request("resumed", first.prompt + answer, FEW)
    return Schedule(
        "resumed", (together(first), together(resumed, when=gone("first"))), options=options
    )


def _no_room(brief: Brief) -> Schedule:
    """Two keep the same sequence. What comes next may still use it, and leaves no room for it."""
    twins = [ask(brief, name, MEDIUM, max_tokens=FEW) for name in ("twin", "other_twin")]
    return Schedule(
        "no_room",
        (
            together(*twins),
            together(ask(brief, "again", MEDIUM, max_tokens=FEW), when=gone("twin")),
            together(ask(brief, "last", MEDIUM, max_tokens=FEW), when=gone("again")),
        ),
        options=EngineOptions(prefix_caching=PrefixCaching(max_bytes=0)),
    )
