"""Witnesses about quantized caches: their existence, and what happened to their rows."""

from __future__ import annotations

from itertools import pairwise

from conformance.core.schedule import Stage
from conformance.core.trace import Step, Trace
from conformance.scenarios.scenario import Witness


def quantized() -> Witness:
    """Some layer's cache was quantized."""
    return Witness("a quantized cache", lambda trace: any(map(_is_quantized, trace.steps)))


def row_leaves() -> Witness:
    """A row left a quantized batch in which another kept decoding."""

    def seen(trace: Trace) -> bool:
        return any(
            set(before.in_stage(Stage.DECODE)) - set(after.in_stage(Stage.DECODE))
            and set(before.in_stage(Stage.DECODE)) & set(after.in_stage(Stage.DECODE))
            for before, after in _decoding(trace)
        )

    return Witness("a row that leaves a quantized batch", seen)


def row_joins() -> Witness:
    """A row joined a quantized batch in which another was already decoding."""

    def seen(trace: Trace) -> bool:
        return any(
            set(after.in_stage(Stage.DECODE)) - set(before.in_stage(Stage.DECODE))
            and set(before.in_stage(Stage.DECODE)) & set(after.in_stage(Stage.DECODE))
            for before, after in _decoding(trace)
        )

    return Witness("a row that joins a quantized batch", seen)


def either_side_of_start() -> Witness:
    """Prompts shorter and longer than the start were in one batch."""

    def seen(trace: Trace) -> bool:
        kv = trace.schedule.options.kv
        if kv is None:
            return False
        short = {r.request_id for r in trace.schedule.requests if len(r.prompt) < kv.start}
        return any(
            set(rows) & short and set(rows) - short
            for step in trace.steps
            for rows in (step.in_stage(Stage.PREFILL), step.in_stage(Stage.DECODE))
        )

    return Witness("rows on either side of the start", seen)


def _decoding(trace: Trace) -> list[tuple[Step, Step]]:
    """Each step that ended with a quantized cache, and the next one."""
    return [(step, after) for step, after in pairwise(trace.steps) if _is_quantized(step)]


def _is_quantized(step: Step) -> bool:
    return any(layer.quantized for layer in step.layers)
