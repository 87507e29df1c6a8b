"""Cancellation: in every stage, at every place in the batch, and with a follow-up request."""

from __future__ import annotations

from collections.abc import Callable

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Removal, Schedule, Stage
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LASTING,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    at_once,
    gone,
    in_prefill,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.lengthy import decode_of_eight
from conformance.scenarios.scenario import Brief, Scenario


def _queued(brief: Brief) -> Schedule:
    """Two rows decode; the first, third and last of four queued requests are removed; then all."""
    lengths = {"a": SHORT, "b": MEDIUM, "c": TWO, "d": SHORT, "e": MEDIUM, "f": TWO}
    requests = requests_of(brief, lengths, 5)
    return Schedule(
        "queued",
        (
            together(*requests),
            together(
                text_request(brief, "next", MEDIUM, variant=2, max_tokens=3),
                when=gone("c", removed=True),
            ),
            together(
                text_request(brief, "last", SHORT, variant=2, max_tokens=3),
                when=gone("next", removed=True),
            ),
        ),
        (
            Removal(("c", "e", "f"), produced("a", 1)),
            Removal(("d", "next", "a", "b"), produced("a", 2)),
        ),
        options=EngineOptions(prefill_batch_size=2, completion_batch_size=2),
    )


def _prefill(brief: Brief) -> Schedule:
    """A middle, the first and the last of four prompts in prefill are removed; another arrives."""
    requests = [
        text_request(brief, "a", LONG),
        text_request(brief, "b", LONG, variant=1),
        text_request(brief, "c", MEDIUM, max_tokens=4),
        text_request(brief, "d", LONG, variant=2),
    ]
    return Schedule(
        "prefill",
        (
            together(*requests),
            together(
                text_request(brief, "next", SHORT, max_tokens=3), when=gone("d", removed=True)
            ),
        ),
        (
            Removal(("b",), in_prefill("a", PIECE)),
            Removal(("a",), in_prefill("a", 2 * PIECE)),
            Removal(("d",), in_prefill("d", 3 * PIECE)),
        ),
        options=IN_PIECES,
    )


def _prefill_all(brief: Brief) -> Schedule:
    """A single prompt in prefill is removed; then two in prefill together, while one decodes."""
    return Schedule(
        "prefill_all",
        (
            together(text_request(brief, "alone", LONG)),
            together(
                text_request(brief, "beside", SHORT, max_tokens=LASTING),
                when=gone("alone", removed=True),
            ),
            together(
                text_request(brief, "b", LONG, variant=1),
                text_request(brief, "c", MEDIUM),
                when=produced("beside", 1),
            ),
            together(
                text_request(brief, "next", MEDIUM, variant=1, max_tokens=3),
                when=gone("b", removed=True),
            ),
        ),
        (
            Removal(("alone",), in_prefill("alone", PIECE)),
            Removal(("b", "c"), in_prefill("b", PIECE)),
        ),
        options=IN_PIECES,
    )


def _decode(brief: Brief) -> Schedule:
    """The first, last and middle of five decoding rows are removed, then all; one more arrives."""
    lengths = {"a": SHORT, "b": LONG, "c": MEDIUM, "d": TWO, "e": MEDIUM}
    requests = requests_of(brief, lengths, LASTING)
    return Schedule(
        "decode",
        (
            together(*requests),
            together(
                text_request(brief, "next", LONG, variant=1, max_tokens=3),
                when=gone("b", removed=True),
            ),
        ),
        (
            Removal(("a",), produced("a", 1)),
            Removal(("e",), produced("e", 2)),
            Removal(("c",), produced("c", 3)),
            Removal(("b", "d"), produced("b", 4)),
        ),
    )


def _every_stage(brief: Brief) -> Schedule:
    """One call removes a decoding row, a prompt in prefill and a waiting request."""
    return Schedule(
        "every_stage",
        (
            together(text_request(brief, "a", SHORT, max_tokens=LASTING)),
            together(text_request(brief, "b", LONG), when=produced("a", 1)),
            together(
                text_request(brief, "c", MEDIUM),
                text_request(brief, "d", TWO),
                when=in_prefill("b", PIECE),
            ),
        ),
        (Removal(("a", "b", "c"), in_prefill("b", 2 * PIECE)),),
        options=EngineOptions(
            prefill_step_size=PIECE, prefill_batch_size=1, completion_batch_size=3
        ),
    )


def _longest(brief: Brief) -> list[Schedule]:
    """The longer of two rows is removed, in prefill or decode; the padded one left is then joined.

    The padding left in prefill is not a multiple of a piece.
    """
    cases = (
        (2 * PIECE + 1, in_prefill("long", PIECE), IN_PIECES),
        (SHORT, produced("long", 2), EngineOptions()),
    )
    return [
        Schedule(
            f"longest_in_{when.stage}",
            (
                together(
                    text_request(brief, "long", LONG, max_tokens=LASTING),
                    text_request(brief, "left", length, max_tokens=LASTING),
                ),
                together(
                    text_request(brief, "next", TWO, max_tokens=3), when=gone("long", removed=True)
                ),
            ),
            (Removal(("long",), when),),
            options=options,
        )
        for length, when, options in cases
    ]


def _rows(brief: Brief) -> Schedule:
    """One of four rows that arrived together is removed, then two; the last one ends by itself.

    An engine only needs to give tokens step by step.
    """
    lengths = {"a": SHORT, "b": MEDIUM, "c": TWO, "d": LONG}
    requests = requests_of(brief, lengths, LASTING)
    return at_once(
        "rows",
        *requests,
        removals=(Removal(("b",), produced("b", 1)), Removal(("a", "d"), produced("a", 3))),
    )


_TIMED = frozenset({Capability.STAGES, Capability.LATE_JOIN})


def _cancelled(brief: Brief) -> list[Schedule]:
    """Removals in each stage.

    An engine without pieces, stages or late joins runs what it can, and ``rows``.
    """
    cut, timed = Capability.CHUNKED in brief.capabilities, brief.capabilities >= _TIMED
    makers: tuple[Callable[[Brief], Schedule], ...]
    if cut and timed:
        makers = (_queued, _prefill, _prefill_all, _decode, _every_stage)
    elif timed:
        makers = (_rows, _queued, _decode)
    else:
        return [_rows(brief)]
    longest = [s for s in _longest(brief) if cut or s.name != "longest_in_prefill"]
    return [*(make(brief) for make in makers), *longest, decode_of_eight(brief)]


CANCELLED = Scenario(
    "cancelled",
    110,
    "removal in the queue, in prefill and in decode, and a follow-up request",
    frozenset({Capability.CANCEL}),
    _cancelled,
    (
        seen.chunks(3).shown_in("prefill", "prefill_all"),
        seen.removed_from(Stage.QUEUED).shown_in("queued", "every_stage"),
        seen.removed_from(Stage.PREFILL).shown_in(
            "prefill", "prefill_all", "every_stage", "longest_in_prefill"
        ),
        seen.removed_from(Stage.PREFILL, among=4).shown_in("prefill"),
        seen.removed_from(Stage.DECODE).shown_in(
            "rows", "queued", "decode", "every_stage", "longest_in_decode"
        ),
        seen.removed_from(Stage.DECODE, among=5).shown_in("decode"),
        seen.removed_from(Stage.DECODE, among=8).shown_in("decode_of_eight"),
        seen.longest_leaves(Stage.PREFILL).shown_in("longest_in_prefill"),
        seen.longest_leaves(Stage.DECODE).shown_in("longest_in_decode"),
        seen.follow_up().shown_in("queued", "prefill", "prefill_all", "decode*", "longest_in_*"),
    ),
)
