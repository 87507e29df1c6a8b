"""Merge, extend, filter and prepare of batch caches: rows that lose what is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList

from conformance.backend.shared_faults import RECURRENT_MODULE, differs
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap, wrap_each
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    KV_CACHES,
    RECURRENT,
    ROPE,
    generate,
    mlx_lm_fault,
)

_BATCH = generate.GenerationBatch
_lengths = partial(mlx_lm_fault, fault_class="lengths lost", source="mlx-lm #1072")
_merge = partial(mlx_lm_fault, fault_class="cache merge", source="mlx-lm #1072")


@_lengths(
    "A7.extend-drops-offsets",
    needs=(ROPE, ATTENTION),
    kills=("staggered", "ragged"),
    where="cache:*:offset",
)
def extend_drops_offsets(hits: Hits) -> Patch:
    """Rows that join take the length of the first row in place of their own."""

    def extend(right: Right, self: Any, other: Any) -> None:
        mine = self.offset
        right(self, other)
        joined = mx.broadcast_to(mine[:1], other.offset.shape)
        wrong = mx.concatenate([mine, joined])
        if differs(wrong, self.offset):
            hits.hit()
            self.offset = wrong

    return wrap_each(KV_CACHES, "extend", extend)


@_lengths(
    "A7.composite-not-prepared",
    needs=("cache:CacheList",),
    kills=("ragged", "chunked"),
    where="cache:*",
)
def composite_not_prepared(hits: Hits) -> Patch:
    """Of a composite cache only the first part gets the rows' lengths."""

    def prepare(right: Right, self: Any, **options: Any) -> None:
        hits.hit_if(len(self.caches) > 1)
        with replace(self, "caches", self.caches[:1]):
            right(self, **options)

    return wrap(CacheList, "prepare", prepare)


@_merge(
    "A9.cold-rows-unpadded",
    needs=(ATTENTION,),
    kills=("prompt_cache",),
    where="cache:*:left_padding",
)
def cold_rows_unpadded(hits: Hits) -> Patch:
    """Empty caches merged with full ones: their rows attend the zeros that fill them."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        cold = mx.array([c.keys is None for c in caches])
        if cache.keys is not None and cold.any().item():
            hits.hit()
            cache.left_padding = mx.where(cold, 0, cache.left_padding)
        return cache

    return wrap_each(KV_CACHES, "merge", merge)


@_merge(
    "A9.warm-state-for-cold-rows",
    needs=(RECURRENT,),
    kills=("prompt_cache",),
    where=f"cache:*ArraysCache:*|{RECURRENT_MODULE}",
)
def warm_state_for_cold_rows(hits: Hits) -> Patch:
    """Empty recurrent states merged with full ones begin with another row's state."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        warm = next((c for c in caches if not c.empty()), None)
        for row, one in enumerate(caches):
            if warm is not None and one.empty():
                hits.hit()
                for index, state in enumerate(warm.cache):
                    cache.cache[index][row : row + 1] = state
        return cache

    return wrap(ArraysCache, "merge", merge)


@_merge(
    "A9.merge-of-empty-state",
    needs=(RECURRENT,),
    kills=("prompt_cache",),
    where="crash:*cache.py*",
    crash=True,
)
def merge_of_empty_state(hits: Hits) -> Patch:
    """The merge of an empty recurrent state with a full one takes the shape of None."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        states = [state for c in caches for state in c.cache]
        if any(s is None for s in states) and any(s is not None for s in states):
            hits.hit()
            return [state.shape for state in states]
        return right(cls, caches)

    return wrap(ArraysCache, "merge", merge)


@_merge(
    "A9.merge-goes-by-the-first",
    needs=(RECURRENT,),
    kills=("prompt_cache/between",),
    where=f"cache:*ArraysCache:*|{RECURRENT_MODULE}",
    source="mlx-lm #842: the first row's cache decided how all were merged",
)
def merge_goes_by_the_first(hits: Hits) -> Patch:
    """Recurrent states are merged as empty ones if the first of them is."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        if caches[0].empty() and not all(one.empty() for one in caches):
            hits.hit()
            cache.cache = [mx.zeros_like(state) for state in cache.cache]
        return cache

    return wrap(ArraysCache, "merge", merge)


def _unshifted(right: Right, one: Any, other: Any, hits: Hits) -> None:
    """A join after which the rows' padding does not count the columns that were added."""
    rows, theirs = one.left_padding.size, other.left_padding
    right(one, other)
    wrong = mx.concatenate([one.left_padding[:rows], theirs])
    if differs(wrong, one.left_padding):
        hits.hit()
        one.left_padding = wrong


@_merge(
    "A9.extend-by-empty-unpadded",
    needs=(ATTENTION,),
    kills=("cancelled", "staggered"),
    where="cache:*:left_padding",
)
def extend_by_empty_unpadded(hits: Hits) -> Patch:
    """An empty cache that joins a full one counts no padding for the others' columns."""

    def extend(right: Right, self: Any, other: Any) -> None:
        if other.keys is None:
            _unshifted(right, self, other, hits)
        else:
            right(self, other)

    return wrap_each(KV_CACHES, "extend", extend)


@_merge(
    "A9.filter-keeps-the-first-rows",
    needs=(ATTENTION,),
    kills=("early_finish", "cancelled"),
    where="cache:*KVCache:*",
)
def filter_keeps_the_first_rows(hits: Hits) -> Patch:
    """When rows leave, those that stay get the keys and values of the first rows."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        if self.keys is not None and list(keep) != list(range(len(keep))):
            hits.hit()
            order = list(range(self.keys.shape[0]))
            for index, row in enumerate(keep):
                order[row] = index
            self.keys, self.values = self.keys[mx.array(order)], self.values[mx.array(order)]
        right(self, keep)

    return wrap_each(KV_CACHES, "filter", filter_rows)


@mlx_lm_fault(
    "A10.buffers-of-an-empty-batch",
    fault_class="leak",
    source="mlx-lm #1072",
    kills=("batch_of_one",),
)
def buffers_of_an_empty_batch(hits: Hits) -> Patch:
    """After its last row has left, the batch keeps its buffers until the next join."""

    def filter_rows(right: Right, self: Any, keep: list[int]) -> None:
        held = [] if keep else list(self.prompt_cache)
        right(self, keep)
        if held:
            hits.hit()
            self.prompt_cache = held

    def extend(right: Right, self: Any, batch: Any) -> None:
        if not self.uids:
            self.prompt_cache = []
        right(self, batch)

    return together(wrap(_BATCH, "filter", filter_rows), wrap(_BATCH, "extend", extend))


@mlx_lm_fault(
    "B18.joining-row-attends-its-padding",
    fault_class="mask ignored",
    source="mlx-vlm #1030",
    needs=(ATTENTION,),
    kills=("staggered", "chunked"),
    where="cache:*:left_padding",
)
def joining_row_attends_its_padding(hits: Hits) -> Patch:
    """A short row that joins long ones attends the zeros that bring it to their length."""

    def extend(right: Right, self: Any, other: Any) -> None:
        _unshifted(right, self, other, hits)

    return wrap_each(KV_CACHES, "extend", extend)
