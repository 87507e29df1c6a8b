"""Tokens that end every request: of the tokenizer or the model, not of a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.build import (
    LASTING,
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    text_request,
)
from conformance.scenarios.scenario import Brief, Witness

NEEDS = frozenset({Capability.STOP_TOKENS})
NAME = "stop_tokens"


def schedules(brief: Brief) -> list[Schedule]:
    """Rows that stop at their first token or later, next to rows that reach their limit."""
    if not brief.capabilities >= NEEDS:
        return []
    rows = [
        text_request(brief, f"r{length}", length, max_tokens=out)
        for length, out in ((LONG, LASTING), (SHORT, LASTING), (MEDIUM, 2), (TWO, LASTING))
    ]
    return [at_once(NAME, *stopping(brief, rows))]


def stopping(brief: Brief, rows: Sequence[Request]) -> list[Request]:
    """``rows`` with two stop tokens in common, which end as few of them as possible.

    One is the first token of the last row, the other occurs later in another row. If this ends all
    rows, the first token of another row is taken, or only one token.
    """
    outputs = [brief.solo(row, EngineOptions()).tokens for row in rows]

    def left(*stops: int) -> bool:
        return any(set(stops).isdisjoint(output) for output in outputs)

    def later(first: int) -> list[int]:
        others = (output for output in outputs if first not in output)
        inner = {token: None for o in others for token in o[1:] if token != o[0]}
        return [token for token in inner if left(first, token)]

    def ended(token: int) -> int:
        return sum(token in output for output in outputs)

    firsts = [output[0] for output in reversed(outputs)]
    first = next((t for t in firsts if later(t)), next(filter(left, firsts), firsts[0]))
    stops = dict.fromkeys((first, min(later(first), key=ended, default=first)))
    return [msgspec.structs.replace(row, stop=tuple((t,) for t in stops)) for row in rows]


def witness() -> Witness:
    """Rows stop at a token, one at its first, while others reach their limit."""

    def seen(trace: Trace) -> bool:
        streams = [trace.stream(request.request_id) for request in trace.schedule.requests]
        stopped = [s for s in streams if s.finish_reason is FinishReason.STOP]
        limited = [s for s in streams if s.finish_reason is FinishReason.LENGTH]
        lengths = {len(stream.tokens) for stream in stopped}
        return bool(limited) and 1 in lengths

    return Witness(
        "a row that ends with its first token, beside rows that do not", seen, needs=NEEDS
    )
