"""Cancellation: in every stage, at every place in the batch, and what comes after it."""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.options import EngineOptions
from conformance.core.schedule import Removal, Schedule, Stage
from conformance.scenarios import witnesses as seen
from conformance.scenarios.base import Brief, Scenario
from conformance.scenarios.build import (
    LASTING,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    ask,
    gone,
    in_prefill,
    produced,
    together,
)


def _queued(brief: Brief) -> Schedule:
    """Two rows decode; of four that wait, the first, third and last are removed; then all."""
    lengths = {"a": SHORT, "b": MEDIUM, "c": TWO, "d": SHORT, "e": MEDIUM, "f": TWO}
    requests = [ask(brief, name, n, max_tokens=5) for name, n in lengths.items()]
    return Schedule(
        "queued",
        (
            together(*requests),
            together(ask(brief, "next", MEDIUM, max_tokens=3), when=gone("c", removed=True)),
            together(ask(brief, "last", SHORT, max_tokens=3), when=gone("next", removed=True)),
        ),
        (
            Removal(("c", "e", "f"), produced("a", 1)),
            Removal(("d", "next", "a", "b"), produced("a", 2)),
        ),
        options=EngineOptions(prefill_batch_size=2, completion_batch_size=2),
    )


def _prefill(brief: Brief) -> Schedule:
    """Four prompts in prefill: the middle, the first, the last go; a follow-up comes."""
    requests = [
        ask(brief, "a", LONG),
        ask(brief, "b", LONG, variant=1),
        ask(brief, "c", MEDIUM, max_tokens=4),
        ask(brief, "d", LONG, variant=2),
    ]
    return Schedule(
        "prefill",
        (
            together(*requests),
            together(ask(brief, "next", SHORT, max_tokens=3), when=gone("d", removed=True)),
        ),
        (
            Removal(("b",), in_prefill("a", PIECE)),
            Removal(("a",), in_prefill("a", 2 * PIECE)),
            Removal(("d",), in_prefill("d", 3 * PIECE)),
        ),
        options=EngineOptions(prefill_step_size=PIECE),
    )


def _prefill_all(brief: Brief) -> Schedule:
    """A prompt alone in prefill goes; then two that are in prefill together, while one decodes."""
    return Schedule(
        "prefill_all",
        (
            together(ask(brief, "alone", LONG)),
            together(
                ask(brief, "beside", SHORT, max_tokens=LASTING), when=gone("alone", removed=True)
            ),
            together(ask(brief, "b", LONG), ask(brief, "c", MEDIUM), when=produced("beside", 1)),
            together(ask(brief, "next", MEDIUM, max_tokens=3), when=gone("b", removed=True)),
        ),
        (
            Removal(("alone",), in_prefill("alone", PIECE)),
            Removal(("b", "c"), in_prefill("b", PIECE)),
        ),
        options=EngineOptions(prefill_step_size=PIECE),
    )


def _decode(brief: Brief) -> Schedule:
    """Five rows decode: the first, the last, the middle go, then all; a follow-up comes."""
    lengths = {"a": SHORT, "b": LONG, "c": MEDIUM, "d": TWO, "e": MEDIUM}
    requests = [ask(brief, name, n, max_tokens=LASTING) for name, n in lengths.items()]
    return Schedule(
        "decode",
        (
            together(*requests),
            together(ask(brief, "next", LONG, max_tokens=3), when=gone("b", removed=True)),
        ),
        (
            Removal(("a",), produced("a", 1)),
            Removal(("e",), produced("e", 2)),
            Removal(("c",), produced("c", 3)),
            Removal(("b", "d"), produced("b", 4)),
        ),
    )


def _every_stage(brief: Brief) -> Schedule:
    """One call removes a row that decodes, a prompt in prefill and a request that waits."""
    return Schedule(
        "every_stage",
        (
            together(ask(brief, "a", SHORT, max_tokens=LASTING)),
            together(ask(brief, "b", LONG), when=produced("a", 1)),
            together(ask(brief, "c", MEDIUM), ask(brief, "d", TWO), when=in_prefill("b", PIECE)),
        ),
        (Removal(("a", "b", "c"), in_prefill("b", 2 * PIECE)),),
        options=EngineOptions(
            prefill_step_size=PIECE, prefill_batch_size=1, completion_batch_size=3
        ),
    )


def _longest(brief: Brief) -> list[Schedule]:
    """Of two rows the longer goes, in prefill and in decode: one padded row is left, and is joined.

    The padding that is left in prefill is no multiple of a piece.
    """
    cases = (
        (2 * PIECE + 1, in_prefill("long", PIECE), EngineOptions(prefill_step_size=PIECE)),
        (SHORT, produced("long", 2), EngineOptions()),
    )
    return [
        Schedule(
            f"longest_in_{when.stage}",
            (
                together(
                    ask(brief, "long", LONG, max_tokens=LASTING),
                    ask(brief, "left", length, max_tokens=LASTING),
                ),
                together(ask(brief, "next", TWO, max_tokens=3), when=gone("long", removed=True)),
            ),
            (Removal(("long",), when),),
            options=options,
        )
        for length, when, options in cases
    ]


def _cancelled(brief: Brief) -> list[Schedule]:
    makers = (_queued, _prefill, _prefill_all, _decode, _every_stage)
    return [*(make(brief) for make in makers), *_longest(brief)]


CANCELLED = Scenario(
    "cancelled",
    110,
    "removal in the queue, in prefill and in decode, and a follow-up request",
    frozenset({Capability.CANCEL, Capability.STAGES, Capability.CHUNKED, Capability.LATE_JOIN}),
    _cancelled,
    (
        seen.chunks(3),
        seen.removed_from(Stage.QUEUED),
        seen.removed_from(Stage.PREFILL),
        seen.removed_from(Stage.PREFILL, among=4),
        seen.removed_from(Stage.DECODE),
        seen.removed_from(Stage.DECODE, among=5),
        seen.longest_leaves(Stage.PREFILL),
        seen.longest_leaves(Stage.DECODE),
        seen.follow_up(),
    ),
)
