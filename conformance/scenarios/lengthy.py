"""Long schedules: prompts, outputs and batches that exceed storage sizes.

Caches grow by 256 slots, recurrent layers scan in pieces of 256, token buffers grow by 256.
"""

from __future__ import annotations

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Removal, Request, Schedule
from conformance.scenarios.build import (
    IN_PIECES,
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    gone,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief

STEP = 256
# Output tokens of a long request.
MANY = 40
# The rows of a large batch: lengths of prompts, and how many tokens each produces.
_LENGTHS = (MEDIUM, LONG, SHORT, TWO, LONG, SHORT, MEDIUM, TWO)
_ENDS = (1, 3, 9, 2, 7, 4, 12, 5)


def long_prompts(brief: Brief) -> list[Schedule]:
    """Prompts longer than two storage steps, of exactly one, and short; then many tokens.

    The last token of a prompt is processed separately. None for a model without enough positions.
    """
    lengths = (2 * STEP + 8, STEP + 1, SHORT)
    rows = requests_of(brief, lengths, MANY)
    return if_it_fits(brief, at_once("long", *rows))


def long_pieces(brief: Brief) -> list[Schedule]:
    """Pieces as long as a storage step: two whole ones, one and a part, less than one."""
    lengths = (2 * STEP + 1, STEP + STEP // 4, SHORT)
    rows = requests_of(brief, lengths, 3)
    options = EngineOptions(prefill_step_size=STEP)
    return if_it_fits(brief, at_once("long", *rows, options=options))


def if_it_fits(brief: Brief, schedule: Schedule) -> list[Schedule]:
    """The schedule, unless a sequence of it is longer than the model has positions for."""
    most = max(len(request.prompt) + request.max_tokens for request in schedule.requests)
    return [schedule] if brief.longest is None or most <= brief.longest else []


def of_eight(brief: Brief) -> Schedule:
    """Eight rows, each of which ends at another step."""
    return at_once("of_eight", *_rows(brief, _ENDS))


def decode_of_eight(brief: Brief) -> Schedule:
    """Two, then three, then two of eight decoding rows are removed; one joins the rest."""
    rows = _rows(brief, (12,) * len(_ENDS))
    late = text_request(brief, "next", MEDIUM, variant=2, max_tokens=3)
    return Schedule(
        "decode_of_eight",
        (together(*rows), together(late, when=gone("r3", removed=True))),
        (
            Removal(("r0", "r5"), produced("r2", 2)),
            Removal(("r1", "r3", "r7"), produced("r2", 4)),
            Removal(("r4", "r6"), produced("r2", 7)),
        ),
    )


def turns(brief: Brief, window: int) -> Schedule:
    """A prompt and outputs of several windows, in pieces; a row joins when storage has wrapped."""
    rows = [
        text_request(brief, "long", 4 * window + 1, max_tokens=3 * window + 1),
        text_request(brief, "short", TWO, max_tokens=2 * window + 3),
    ]
    late = text_request(brief, "late", 2 * window, variant=1, max_tokens=window + 2)
    arrivals = (together(*rows), together(late, when=produced("short", window + 1)))
    return Schedule("turns", arrivals, options=IN_PIECES)


def pieces_of_windows(brief: Brief, window: int) -> Schedule:
    """Pieces exactly as long as the window: three, two, and less than one."""
    lengths = (3 * window + 1, window - 1, 2 * window)
    rows = requests_of(brief, lengths, 3)
    return at_once("even", *rows, options=EngineOptions(prefill_step_size=window))


def _rows(brief: Brief, ends: tuple[int, ...]) -> list[Request]:
    return [
        text_request(brief, f"r{i}", n, variant=i // 4, max_tokens=out)
        for i, (n, out) in enumerate(zip(_LENGTHS, ends, strict=True))
    ]
