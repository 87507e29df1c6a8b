"""Tokens that end every request: of the tokenizer or the model, not of a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.build import LASTING, LONG, MEDIUM, SHORT, TWO, text_request, together
from conformance.scenarios.scenario import Brief, Witness

NEEDS = frozenset({Capability.STOP_TOKENS})
NAME = "stop_tokens"


def schedules(brief: Brief) -> list[Schedule]:
    """Rows that stop at their first token or later, beside rows that reach their limit."""
    if not brief.capabilities >= NEEDS:
        return []
    rows = [
        text_request(brief, f"r{length}", length, max_tokens=out)
        for length, out in ((LONG, LASTING), (SHORT, LASTING), (MEDIUM, 2), (TWO, LASTING))
    ]
    return [Schedule(NAME, (together(*stopping(brief, rows)),))]


def stopping(brief: Brief, rows: Sequence[Request]) -> list[Request]:
    """``rows`` with two stop tokens in common, which end as few of them as possible.

    One is the first token of the last row, the other comes later in another.
    """
    outputs = [brief.solo(row, EngineOptions()).tokens for row in rows]

    def ended(token: int) -> int:
        return sum(token in output for output in outputs)

    first = outputs[-1][0]
    others = [output for output in outputs[:-1] if first not in output]
    inner = [token for output in others for token in output[1:] if token != output[0]]
    later = min(inner, key=ended, default=first)
    stops = tuple((token,) for token in dict.fromkeys((first, later)))
    return [msgspec.structs.replace(row, stop=stops) for row in rows]


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
