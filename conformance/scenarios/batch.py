"""Rungs in which all requests arrive at once."""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule
from conformance.scenarios import engine_sampling, lengthy, stop_tokens
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LASTING,
    LONG,
    MEDIUM,
    ONE,
    PIECE,
    SHORT,
    TWO,
    at_once,
    requests_of,
    text_request,
)
from conformance.scenarios.scenario import Brief, Scenario

_LATE_DEFAULTS = frozenset({Capability.DEFAULTS, Capability.LATE_JOIN})
NONE: frozenset[Capability] = frozenset()
# Batch sizes around those at which kernels change, including quantized kernels.
WIDTHS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 33)


def _ragged_requests(brief: Brief) -> list[Request]:
    lengths = (LONG, SHORT, MEDIUM, TWO)
    return requests_of(brief, lengths)


def _batch_of_one(brief: Brief) -> list[Schedule]:
    return [at_once(f"of_{length}", text_request(brief, "only", length)) for length in (ONE, LONG)]


def _identical(brief: Brief) -> list[Schedule]:
    return [at_once("identical", *(text_request(brief, f"r{i}", MEDIUM) for i in range(4)))]


def _equal_length(brief: Brief) -> list[Schedule]:
    requests = [text_request(brief, f"r{i}", MEDIUM, variant=i) for i in range(4)]
    return [at_once("equal_length", *requests)]


def _ragged(brief: Brief) -> list[Schedule]:
    tiny = [text_request(brief, "one", ONE), text_request(brief, "medium", MEDIUM)]
    return [
        at_once("ragged", *_ragged_requests(brief)),
        at_once("one_beside_medium", *tiny),
        *lengthy.long_prompts(brief),
    ]


def _chunked(brief: Brief) -> list[Schedule]:
    # Two whole pieces and the last token; one token less and one more; less than a piece.
    edges = requests_of(brief, (2 * PIECE + 1, 2 * PIECE, 2 * PIECE + 2, TWO))
    return [
        at_once("ragged", *_ragged_requests(brief), options=IN_PIECES),
        at_once("edges", *edges, options=IN_PIECES),
        *lengthy.long_pieces(brief),
    ]


def _early_finish(brief: Brief) -> list[Schedule]:
    outputs = {LONG: 2, SHORT: 6, MEDIUM: 1, TWO: 4}
    requests = requests_of(brief, list(outputs), outputs.values())
    plain = at_once("early_finish", *requests)
    schedules = [plain, lengthy.of_eight(brief), *stop_tokens.schedules(brief)]
    # Engines with late arrivals have such schedules in `samplers`.
    if brief.capabilities & _LATE_DEFAULTS == {Capability.DEFAULTS}:
        schedules.append(engine_sampling.ends_apart(brief))
    return schedules


def _slot_reuse(brief: Brief) -> list[Schedule]:
    lengths = (MEDIUM, LONG, SHORT, TWO, MEDIUM)
    outputs = (3, 5, 4, 5, 2)
    requests = [
        text_request(brief, f"r{i}", n, variant=i, max_tokens=out)
        for i, (n, out) in enumerate(zip(lengths, outputs, strict=True))
    ]
    options = EngineOptions(prefill_batch_size=2, completion_batch_size=2)
    return [at_once("slot_reuse", *requests, options=options)]


def _wide(brief: Brief) -> list[Schedule]:
    # Each row has a prompt and a length of its own: rows that were mixed up must not look alike.
    lengths = [SHORT, TWO, *range(SHORT + 1, SHORT + max(WIDTHS) - 1)]
    return [
        at_once(
            f"of_{width}",
            *(
                text_request(brief, f"r{i}", _within(brief, lengths[i]), variant=i, max_tokens=2)
                for i in range(width)
            ),
            options=EngineOptions(prefill_batch_size=width, completion_batch_size=width),
        )
        for width in WIDTHS
    ]


def _within(brief: Brief, length: int) -> int:
    """The length, or a shorter one if the model has few positions."""
    return length if brief.longest is None else min(length, brief.longest - LASTING)


def _threads(brief: Brief) -> list[Schedule]:
    requests = requests_of(brief, (SHORT, MEDIUM), 3)
    return [at_once("other_thread", *requests, decode_on_other_thread=True)]


BATCH_OF_ONE = Scenario(
    "batch_of_one", 20, "one request in the engine", NONE, _batch_of_one, (seen.one_row_calls(),)
)
IDENTICAL = Scenario(
    "identical",
    30,
    "equal prompts in one batch",
    NONE,
    _identical,
    (seen.rows_together(4), seen.prefill_together(4), seen.no_padding()),
)
EQUAL_LENGTH = Scenario(
    "equal_length",
    40,
    "other prompts of equal length",
    NONE,
    _equal_length,
    (seen.rows_together(4), seen.prefill_together(4), seen.no_padding()),
)
RAGGED = Scenario(
    "ragged",
    50,
    "prompts of unequal length: padding",
    NONE,
    _ragged,
    (
        seen.rows_together(4).shown_in("ragged"),
        seen.prefill_together(4).shown_in("ragged"),
        seen.padding().shown_in("ragged"),
        seen.long_prompt(2 * lengthy.STEP).shown_in("long"),
        seen.many_tokens(lengthy.MANY).shown_in("long"),
    ),
)
CHUNKED = Scenario(
    "chunked",
    60,
    "prefill in pieces",
    frozenset({Capability.CHUNKED}),
    _chunked,
    (
        seen.rows_together(4).shown_in("edges"),
        seen.padding(),
        seen.chunks(3),
        seen.long_prompt(2 * lengthy.STEP).shown_in("long"),
    ),
)
EARLY_FINISH = Scenario(
    "early_finish",
    80,
    "rows that end at different steps",
    NONE,
    _early_finish,
    (
        seen.rows_together(4),
        seen.leaves_early(),
        seen.leaves_early(of=7).shown_in("of_eight"),
        stop_tokens.witness().shown_in(stop_tokens.NAME),
    ),
)
SLOT_REUSE = Scenario(
    "slot_reuse",
    90,
    "more requests than slots",
    frozenset({Capability.SLOTS}),
    _slot_reuse,
    (seen.waits_for_slot(), seen.rows_together(2)),
)
WIDE = Scenario(
    "wide",
    160,
    "batch sizes at which kernels change",
    NONE,
    _wide,
    (
        seen.rows_together(max(WIDTHS)).shown_in(f"of_{max(WIDTHS)}"),
        seen.one_row_calls().shown_in("of_1"),
    ),
)
THREADS = Scenario(
    "threads",
    180,
    "decoding on another thread than loading",
    frozenset({Capability.THREADS}),
    _threads,
    (seen.rows_together(2),),
)
