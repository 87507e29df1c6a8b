"""Faults of what is kept for each row of the decoding batch: tokens, logprobs, limits."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import OUTPUT, differs, kept_by_place
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.mlx_vlm.library_parts import batch_class, generator_class
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

# What a batch holds of the logprobs that it gives next.
_LOGPROBS = ("_next_lps", "_next_top_idx", "_next_top_lp")
_fault = partial(mlx_vlm_fault, source="mlx-vlm #1030", kills=("staggered",), where=OUTPUT)
_list = partial(_fault, fault_class="list misalignment")
_limit = partial(_list, source="issue trackers")


@_fault("B1.first-token-lost", fault_class="first token", kills=("batch_of_one",))
def first_token_lost(hits: Hits) -> Patch:
    """A warm-up step after prefill discards the first token of every sequence."""

    def join(right: Right, self: Any, batch: Any) -> None:
        fresh = not self._generation_batch.uids
        right(self, batch)
        if fresh and hasattr(batch, "_step"):
            hits.hit()
            batch._step()

    return wrap(generator_class(), "_extend_generation_batch", join)


@_list("B2.logprobs-of-another-row", where="output:logprobs")
def logprobs_of_another_row(hits: Hits) -> Patch:
    """After a join each row is given its neighbour's logprobs."""

    def shift(_: None, batch: Any, __: Any) -> None:
        for name in _LOGPROBS:
            if getattr(batch, name) is not None and len(batch.uids) > 1:
                hits.hit()
                setattr(batch, name, mx.roll(getattr(batch, name), 1, 0))

    return after(batch_class(), "extend", shift)


@_list("B2.logprobs-shorter-than-rows", where="crash:*", crash=True)
def logprobs_shorter_than_rows(hits: Hits) -> Patch:
    """After a join the list of logprobs lacks the new rows."""

    def extend(right: Right, self: Any, other: Any) -> None:
        kept = {name: getattr(self, name) for name in _LOGPROBS}
        right(self, other)
        if kept["_next_lps"] is not None and len(other.uids):
            hits.hit()
            for name, value in kept.items():
                setattr(self, name, value)

    return wrap(batch_class(), "extend", extend)


@_list(
    "B9.processors-of-rows-that-left",
    source="mlx-vlm #1451",
    kills=("samplers/plain_joins",),
    where="crash:*",
    crash=True,
)
def processors_of_rows_that_left(hits: Hits) -> Patch:
    """A list for rows with processors stays when the last of them leaves, and does not grow."""

    def extend(right: Right, self: Any, other: Any) -> None:
        stale = self.logits_processors
        right(self, other)
        if stale and not self.logits_processors and len(other.uids):
            hits.hit()
            self.logits_processors = stale

    return wrap(batch_class(), "extend", extend)


@_fault("B9.emptied-batch-reused", fault_class="cancellation", kills=("cancelled", "slot_reuse"))
def emptied_batch_reused(hits: Hits) -> Patch:
    """An emptied batch keeps its current tokens, and the next to join produce them."""
    left: list[Any] = []

    def filter_rows(right: Right, self: Any, keep: list[int]) -> None:
        tokens = self._next_tokens
        right(self, keep)
        if not keep and tokens is not None:
            left[:] = [tokens]

    def join(self: Any, batch: Any) -> None:
        if not self._generation_batch.uids and left and hasattr(batch, "_next_tokens"):
            stale = left.pop()[: len(batch.uids)]
            hits.hit_if(differs(stale, batch._next_tokens[: len(stale)]))
            batch._next_tokens = mx.concatenate([stale, batch._next_tokens[len(stale) :]])

    return together(
        wrap(batch_class(), "filter", filter_rows),
        before(generator_class(), "_extend_generation_batch", join),
    )


@_limit("F15.max-tokens-of-another-row", kills=("early_finish",))
def max_tokens_of_another_row(hits: Hits) -> Patch:
    """When rows leave, the first limits are kept instead of those of the rows that stay."""
    return kept_by_place(batch_class(), "max_tokens", hits)


@_limit("F15.counts-of-another-row")
def counts_of_another_row(hits: Hits) -> Patch:
    """When rows leave, the others go on with the counts of produced tokens of the first."""
    return kept_by_place(batch_class(), "_num_tokens", hits)


@_limit("F15.max-tokens-rolled-by-a-join")
def max_tokens_rolled_by_a_join(hits: Hits) -> Patch:
    """A join leaves each row with its neighbour's limit."""

    def roll(_: None, batch: Any, __: Any) -> None:
        if len(set(batch.max_tokens)) > 1:
            hits.hit()
            batch.max_tokens = batch.max_tokens[1:] + batch.max_tokens[:1]

    return after(batch_class(), "extend", roll)


@_limit("F15.tokens-of-another-row", kills=("early_finish",))
def tokens_of_another_row(hits: Hits) -> Patch:
    """When rows leave, the first tokens are kept instead of those of the rows that stay."""
    return kept_by_place(batch_class(), "_next_tokens", hits)
