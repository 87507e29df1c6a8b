"""The lists beside a batch: entries that belong to another row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from conformance.backend.shared_faults import OUTPUT, kept_by_place
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

_BATCH = generate.GenerationBatch
_fault = partial(mlx_lm_fault, source="mlx-vlm #1030", where=OUTPUT)
_list = partial(_fault, fault_class="list misalignment")
_sampler = partial(_list, source="issue trackers: samplers after a row has left")
_limit = partial(_list, source="issue trackers: max_tokens after a row has left")


@_fault("B1.first-sampled-token-lost", fault_class="first token", kills=("batch_of_one",))
def first_sampled_token_lost(hits: Hits) -> Patch:
    """A warm-up step discards the first token that is sampled for each request."""

    def warm_up(_: None, self: Any, *__: Any, **___: Any) -> None:
        if self.uids:
            hits.hit()
            self._step()

    return after(_BATCH, "__init__", warm_up)


@_list("B2.logprobs-of-other-rows", kills=("staggered", "ragged"), where="output:logprobs")
def logprobs_of_other_rows(hits: Hits) -> Patch:
    """After a join the logprobs are in another order than the rows."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows = len(self._next_logprobs) if self.uids else 0
        right(self, batch)
        if rows and len(self._next_logprobs) > rows:
            hits.hit()
            self._next_logprobs = self._next_logprobs[rows:] + self._next_logprobs[:rows]

    return wrap(_BATCH, "extend", extend)


@_list("B2.logprobs-short", kills=("staggered", "ragged"), where="crash:*generate.py*", crash=True)
def logprobs_short(hits: Hits) -> Patch:
    """After a join there are fewer logprobs than rows."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows = len(self.uids)
        right(self, batch)
        if rows and len(self._next_logprobs) > rows:
            hits.hit()
            self._next_logprobs = self._next_logprobs[:rows]

    return wrap(_BATCH, "extend", extend)


@_fault("B9.old-tokens-reused", fault_class="cancellation", kills=("prompt_cache", "cancelled"))
def old_tokens_reused(hits: Hits) -> Patch:
    """A batch that was emptied keeps its tokens, and those who join next produce them."""
    left: list[Any] = []

    def filter_rows(right: Right, batch: Any, keep: Sequence[int]) -> None:
        if not keep:
            left[:] = [batch._next_tokens]
        right(batch, keep)

    def extend(right: Right, batch: Any, other: Any) -> None:
        was_empty = not batch.uids
        right(batch, other)
        if was_empty and left and left[0] is not None:
            hits.hit()
            old = left.pop()
            rows = min(old.size, batch._next_tokens.size)
            batch._next_tokens[:rows] = old[:rows]

    return together(wrap(_BATCH, "filter", filter_rows), wrap(_BATCH, "extend", extend))


@_sampler("F1.sampler-inherited", kills=("early_finish", "samplers"))
def sampler_inherited(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits its sampler."""
    return kept_by_place(_BATCH, "samplers", hits)


@_sampler("F1.processors-inherited", kills=("samplers",))
def processors_inherited(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits its logits processors."""
    return kept_by_place(_BATCH, "logits_processors", hits)


@_limit("F15.limit-of-another-row", kills=("early_finish", "cancelled"))
def limit_of_another_row(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits how many tokens it may produce."""
    return kept_by_place(_BATCH, "max_tokens", hits)


@_limit("F15.count-of-another-row", kills=("samplers", "stop_sequences"))
def count_of_another_row(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits how many tokens it has produced."""
    return kept_by_place(_BATCH, "_num_tokens", hits)
