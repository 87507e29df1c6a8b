"""Merge, extend, filter and prepare of batch caches: rows that lose what is theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import all_of, differs, exchange, exchange_in
from conformance.plugins.mlx_lm.faults.tools import (
    ATTENTION,
    KV_CACHES,
    RECURRENT,
    ROPE,
    generate,
    mlx_lm_fault,
)


def _row_0_for_those_who_join(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extend(self: Any, other: Any) -> None:
        mine = self.offset
        right(self, other)
        joined = mx.broadcast_to(mine[:1], other.offset.shape)
        wrong = mx.concatenate([mine, joined])
        if differs(wrong, self.offset):
            hits.hit()
            self.offset = wrong

    return extend


def _not_shifted(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extend(self: Any, other: Any) -> None:
        rows, theirs = self.left_padding.size, other.left_padding
        right(self, other)
        wrong = mx.concatenate([self.left_padding[:rows], theirs])
        if differs(wrong, self.left_padding):
            hits.hit()
            self.left_padding = wrong

    return extend


def _not_shifted_if_empty(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    unshifted = _not_shifted(right, hits)

    def extend(self: Any, other: Any) -> None:
        (unshifted if other.keys is None else right)(self, other)

    return extend


def _cold_rows_unpadded(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def merge(cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        cold = mx.array([c.keys is None for c in caches])
        if cache.keys is not None and cold.any().item():
            hits.hit()
            cache.left_padding = mx.where(cold, 0, cache.left_padding)
        return cache

    return merge


def _warm_state_for_cold_rows(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def merge(cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        warm = next((c for c in caches if not c.empty()), None)
        for row, one in enumerate(caches):
            if warm is not None and one.empty():
                hits.hit()
                for index, state in enumerate(warm.cache):
                    cache.cache[index][row : row + 1] = state
        return cache

    return merge


def _shape_of_nothing(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def merge(cls: Any, caches: Sequence[Any]) -> Any:
        states = [state for c in caches for state in c.cache]
        if any(s is None for s in states) and any(s is not None for s in states):
            hits.hit()
            return [state.shape for state in states]
        return right(cls, caches)

    return merge


def _first_rows(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def filter_rows(self: Any, keep: Sequence[int]) -> None:
        if self.keys is not None and list(keep) != list(range(len(keep))):
            hits.hit()
            order = list(range(self.keys.shape[0]))
            for index, row in enumerate(keep):
                order[row] = index
            self.keys, self.values = self.keys[mx.array(order)], self.values[mx.array(order)]
        right(self, keep)

    return filter_rows


def _first_only(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def prepare(self: Any, **options: Any) -> None:
        whole = self.caches
        self.caches = whole[:1]
        if len(whole) > 1:
            hits.hit()
        try:
            right(self, **options)
        finally:
            self.caches = whole

    return prepare


def _buffers_kept(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def filter_rows(self: Any, keep: list[int]) -> None:
        held = [] if keep else list(self.prompt_cache)
        right(self, keep)
        if held:
            hits.hit()
            self.prompt_cache = held

    return filter_rows


def _forgotten_at_join(right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
    def extend(self: Any, batch: Any) -> None:
        if not self.uids:
            self.prompt_cache = []
        right(self, batch)

    return extend


_BATCH = generate.GenerationBatch
FAULTS = (
    mlx_lm_fault(
        name="A7.extend-drops-offsets",
        fault_class="lengths lost",
        source="mlx-lm #1072",
        summary="Rows that join take the length of the first row in place of their own.",
        needs=(ROPE, ATTENTION),
        kills=("staggered", "ragged"),
        where="cache:*:offset",
        inject=exchange_in(KV_CACHES, "extend", _row_0_for_those_who_join),
    ),
    mlx_lm_fault(
        name="A7.composite-not-prepared",
        fault_class="lengths lost",
        source="mlx-lm #1072",
        summary="Of a composite cache only the first part is told the rows' lengths.",
        needs=("cache:CacheList",),
        kills=("ragged", "chunked"),
        where="cache:*",
        inject=exchange(CacheList, "prepare", _first_only),
    ),
    mlx_lm_fault(
        name="A9.cold-rows-unpadded",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="Empty caches merged with full ones: their rows attend the zeros that fill them.",
        needs=(ATTENTION,),
        kills=("prompt_cache",),
        where="cache:*:left_padding",
        inject=exchange_in(KV_CACHES, "merge", _cold_rows_unpadded),
    ),
    mlx_lm_fault(
        name="A9.warm-state-for-cold-rows",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="Empty recurrent states merged with full ones begin with another row's state.",
        needs=(RECURRENT,),
        kills=("prompt_cache",),
        where="cache:*ArraysCache:*|module:*amba*|module:*Mixer|module:*DeltaNet*",
        inject=exchange(ArraysCache, "merge", _warm_state_for_cold_rows),
    ),
    mlx_lm_fault(
        name="A9.merge-of-empty-state",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="The merge of an empty recurrent state with a full one asks for the shape of None.",
        needs=(RECURRENT,),
        kills=("prompt_cache",),
        where="crash:*cache.py*",
        inject=exchange(ArraysCache, "merge", _shape_of_nothing),
        crash=True,
    ),
    mlx_lm_fault(
        name="A9.extend-by-empty-unpadded",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="An empty cache that joins a full one counts no padding for the others' columns.",
        needs=(ATTENTION,),
        kills=("cancelled", "staggered"),
        where="cache:*:left_padding",
        inject=exchange_in(KV_CACHES, "extend", _not_shifted_if_empty),
    ),
    mlx_lm_fault(
        name="A9.filter-keeps-the-first-rows",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="When rows leave, those that stay get the keys and values of the first rows.",
        needs=(ATTENTION,),
        kills=("early_finish", "cancelled"),
        where="cache:*KVCache:*",
        inject=exchange_in(KV_CACHES, "filter", _first_rows),
    ),
    mlx_lm_fault(
        name="A10.buffers-of-an-empty-batch",
        fault_class="leak",
        source="mlx-lm #1072",
        summary="After its last row has left, the batch keeps its buffers until the next join.",
        needs=(),
        kills=("batch_of_one",),
        inject=all_of(
            exchange(_BATCH, "filter", _buffers_kept),
            exchange(_BATCH, "extend", _forgotten_at_join),
        ),
    ),
    mlx_lm_fault(
        name="B18.joining-row-attends-its-padding",
        fault_class="mask ignored",
        source="mlx-vlm #1030",
        summary="A short row that joins long ones attends the zeros that bring it to their length.",
        needs=(ATTENTION,),
        kills=("staggered", "chunked"),
        where="cache:*:left_padding",
        inject=exchange_in(KV_CACHES, "extend", _not_shifted),
    ),
)
