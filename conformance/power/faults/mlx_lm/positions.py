"""Positions: the wrong offset for the rotary embedding of a row."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import leaves
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap, wrap_each
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    KV_CACHES,
    ROPE,
    generate,
    mlx_lm_fault,
)
from conformance.power.faults.shared_faults import differs, of_row_0, rotated_at

_fault = partial(
    mlx_lm_fault, source="mlx-vlm #1030", needs=(ROPE, ATTENTION), where="module:*RoPE"
)

# Positions that a dynamic RoPE is made for.
_TRAINED = 64


@_fault("B4.offset-of-row-0", fault_class="rope offset", kills=("ragged", "early_finish"))
def offset_of_row_0(hits: Hits) -> Patch:
    """All rows are rotated by the offset of the first."""
    return rotated_at(lambda _, offset: of_row_0(offset), hits)


@_fault(
    "B14.offset-as-scalar",
    fault_class="scalar/array dispatch",
    kills=("identical",),
    where="crash:*rope*|crash:*positional_encoding*",
    crash=True,
)
def offset_as_scalar(hits: Hits) -> Patch:
    """One number is taken out of the offsets, which raises for more than one row."""

    def rope(right: Right, x: mx.array, *args: Any, offset: Any, **options: Any) -> Any:
        if isinstance(offset, mx.array):
            hits.hit_if(offset.size > 1)
            offset = offset.item()
        return right(x, *args, offset=offset, **options)

    return wrap(mx.fast, "rope", rope)


@_fault(
    "B16.offset-moves-between-query-and-key",
    fault_class="offset alias",
    kills=("batch_of_one", "ragged"),
)
def offset_moves_between_query_and_key(hits: Hits) -> Patch:
    """Offsets are advanced in place, so that only the first rotation sees them right."""
    seen: mx.array | None = None

    def change(x: mx.array, offset: mx.array) -> mx.array:
        nonlocal seen
        again, seen = offset is seen, offset
        return offset + x.shape[-2] if again else offset

    return rotated_at(change, hits)


@_fault(
    "C1.padding-subtracted-twice",
    fault_class="rope position",
    source="mlx-vlm #1055",
    kills=("ragged", "chunked"),
    where="cache:*KVCache:offset",
)
def padding_subtracted_twice(hits: Hits) -> Patch:
    """The padding of a row is subtracted twice from its offset."""

    def finalize(right: Right, self: Any) -> None:
        true = self.offset
        right(self)
        if differs(true, self.offset):
            hits.hit()
            self.offset = self.offset - (true - self.offset)

    return wrap_each(KV_CACHES, "finalize", finalize)


@_fault(
    "C4.columns-in-prefill",
    fault_class="rope position",
    source="mlx-vlm #1055",
    kills=("prompt_cache",),
    where="module:*RoPE|cache:*:offset",
)
def columns_in_prefill(hits: Hits) -> Patch:
    """Prefill rotates by the column, padding counted; decoding by the row's position."""

    def prompt(right: Right, self: Any, tokens: list[list[int]]) -> None:
        caches = [c for c in leaves(self.prompt_cache) if isinstance(c, KV_CACHES)]
        true = [cache.offset for cache in caches]
        for cache in caches:
            cache.offset = mx.full(cache.offset.shape, cache._idx)
        pairs = zip(caches, true, strict=True)
        hits.hit_if(any(differs(cache.offset, offset) for cache, offset in pairs))
        right(self, tokens)
        # Decoding goes by the rows' own positions.
        for cache, offset in zip(caches, true, strict=True):
            cache.offset = offset + mx.array([len(row) for row in tokens])

    return wrap(generate.PromptProcessingBatch, "prompt", prompt)


@_fault(
    "F12.neighbours-at-one-token",
    fault_class="rope kernel",
    source="issue trackers: fast RoPE of a batch at one token",
    kills=("identical", "ragged"),
)
def neighbours_at_one_token(hits: Hits) -> Patch:
    """At one token a step row b is rotated by the first row's offset plus b.

    A kernel for one token takes the rows of a batch for the steps of a sequence.
    """

    def change(x: mx.array, offset: mx.array) -> mx.array:
        return offset[:1] + mx.arange(offset.size) if x.shape[-2] == 1 else offset

    return rotated_at(change, hits)


@_fault(
    "B4.scale-of-the-longest-ever",
    fault_class="state on a module",
    source="a review: dynamic NTK keeps the longest length, as in transformers",
    kills=("stale_state",),
)
def scale_of_the_longest_ever(hits: Hits) -> Patch:
    """Past 64 positions RoPE gets another scale, which it keeps for all that come later."""
    longest = 0

    def rope(
        right: Right, x: mx.array, *args: Any, scale: float = 1.0, offset: Any, **options: Any
    ) -> Any:
        nonlocal longest
        own = x.shape[-2] + int(mx.max(mx.array(offset)))
        longest = max(longest, own)
        if longest > _TRAINED >= own:
            hits.hit()
            scale = scale * _TRAINED / longest
        return right(x, *args, scale=scale, offset=offset, **options)

    return wrap(mx.fast, "rope", rope)
