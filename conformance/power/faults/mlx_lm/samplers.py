"""Samplers and logits processors that see or change other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils

from conformance.backend.shared_faults import (
    OUTPUT,
    differs,
    kept_by_place,
    nucleus_of_all_rows,
)
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

_BATCH = generate.GenerationBatch
Processor = Callable[[mx.array, mx.array], mx.array]
_fault = partial(
    mlx_lm_fault,
    fault_class="samplers",
    source="a Swift engine's fork",
    kills=("samplers",),
    where=OUTPUT,
)


@_fault("D7.penalties-in-shared-logits")
def penalties_in_shared_logits(hits: Hits) -> Patch:
    """What a row's processors change stays changed for the rows after it."""

    def step(right: Right, self: Any) -> Any:
        own = self.logits_processors
        if not any(own):
            return right(self)
        moved: list[mx.array] = []

        def in_place(processors: Sequence[Processor]) -> Processor:
            def process(tokens: mx.array, logits: mx.array) -> mx.array:
                logits = sum(moved, logits)
                out = mx.array(logits)
                for processor in processors:
                    out = processor(tokens, out)
                hits.hit_if(moved)
                moved.append(out - logits)
                return out

            return process

        shared = [(in_place(processors),) for processors in own]
        with replace(self, "logits_processors", shared):
            return right(self)

    return wrap(_BATCH, "_step", step)


@_fault("D8.history-of-another-row")
def history_of_another_row(hits: Hits) -> Patch:
    """When a row leaves, the next one's penalties count that row's tokens."""
    return kept_by_place(_BATCH, "_token_context", hits)


@_fault("F2.xtc-threshold-over-rows", source="issue trackers: XTC in a batch")
def xtc_threshold_over_rows(hits: Hits) -> Patch:
    """The least likely of the likely tokens is looked for in all rows, not in each."""

    def apply_xtc(
        right: Right, logits: mx.array, probability: float, threshold: float, special: list[int]
    ) -> mx.array:
        probs = mx.softmax(logits, -1)
        least = mx.where(probs > threshold, probs, mx.inf).min()
        wrong = mx.where(probs > least, -mx.inf, logits)
        apart = mx.concatenate([right(r[None], probability, threshold, special) for r in logits])
        hits.hit_if(differs(wrong, apart))
        return wrong

    return wrap(sample_utils, "apply_xtc", apply_xtc)


@_fault("F2.top-p-threshold-over-rows", source="issue trackers: top-p in a batch")
def top_p_threshold_over_rows(hits: Hits) -> Patch:
    """The narrowest nucleus of all rows bounds the tokens of each."""
    return nucleus_of_all_rows(sample_utils, hits)
