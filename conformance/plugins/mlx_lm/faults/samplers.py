"""Samplers and logits processors that see or change other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import differs, exchange
from conformance.plugins.mlx_lm.faults.lists import cut_not_filtered
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault


def _shared_logits(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    """What the processors of a row change, they change in all rows after it."""

    def step(self: Any) -> Any:
        own = self.logits_processors
        if not any(own):
            return right(self)
        moved: list[mx.array] = []

        def in_place(processors: Sequence[Callable[..., mx.array]]) -> Callable[..., mx.array]:
            def process(tokens: mx.array, logits: mx.array) -> mx.array:
                logits = sum(moved, logits)
                out = mx.array(logits)
                for processor in processors:
                    out = processor(tokens, out)
                if moved:
                    hits.hit()
                moved.append(out - logits)
                return out

            return process

        self.logits_processors = [(in_place(processors),) for processors in own]
        try:
            return right(self)
        finally:
            self.logits_processors = own

    return step


def _xtc_over_rows(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def apply(logits: mx.array, probability: float, threshold: float, special: list[int]) -> Any:
        probs = mx.softmax(logits, -1)
        least = mx.where(probs > threshold, probs, mx.inf).min()
        wrong = mx.where(probs > least, -mx.inf, logits)
        apart = mx.concatenate([right(r[None], probability, threshold, special) for r in logits])
        if differs(wrong, apart):
            hits.hit()
        return wrong

    return apply


def _top_p_over_rows(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def apply(logprobs: mx.array, top_p: float) -> mx.array:
        apart: mx.array = right(logprobs, top_p)
        least = mx.where(apart == -mx.inf, mx.inf, apart).min(axis=-1).max()
        wrong = mx.where(logprobs < least, -mx.inf, logprobs)
        if differs(wrong, apart):
            hits.hit()
        return wrong

    return apply


FAULTS = (
    mlx_lm_fault(
        name="D7.penalties-in-shared-logits",
        fault_class="samplers",
        source="a Swift engine's fork",
        summary="What a row's processors change stays changed for the rows after it.",
        needs=(),
        kills=("samplers",),
        where="input:tokens|output:*",
        inject=exchange(generate.GenerationBatch, "_step", _shared_logits),
    ),
    mlx_lm_fault(
        name="D8.history-of-another-row",
        fault_class="samplers",
        source="a Swift engine's fork",
        summary="When a row leaves, the next one's penalties count what that one has said.",
        needs=(),
        kills=("samplers",),
        where="input:tokens|output:*",
        inject=cut_not_filtered("_token_context"),
    ),
    mlx_lm_fault(
        name="F2.xtc-threshold-over-rows",
        fault_class="samplers",
        source="issue trackers: XTC in a batch",
        summary="The least likely of the likely tokens is looked for in all rows, not in each.",
        needs=(),
        kills=("samplers",),
        where="input:tokens|output:*",
        inject=exchange(sample_utils, "apply_xtc", _xtc_over_rows),
    ),
    mlx_lm_fault(
        name="F2.top-p-threshold-over-rows",
        fault_class="samplers",
        source="issue trackers: top-p in a batch",
        summary="The narrowest nucleus of all rows bounds the tokens of each.",
        needs=(),
        kills=("samplers",),
        where="input:tokens|output:*",
        inject=exchange(sample_utils, "apply_top_p", _top_p_over_rows),
    ),
)
