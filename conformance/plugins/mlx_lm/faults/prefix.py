"""Caches that are taken out of a batch and gone on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import all_of, exchange, exchange_in
from conformance.plugins.mlx_lm.faults.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    ROPE,
    generate,
    mlx_lm_fault,
)


def _from_zero(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def merge(cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        if any(c.size() for c in caches):
            hits.hit()
            cache.offset = mx.zeros_like(cache.offset)
        return cache

    return merge


def _one_too_few(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extract(self: Any, idx: int) -> Any:
        cache = right(self, idx)
        hits.hit()
        cache.trim(1)
        return cache

    return extract


def _one_too_many(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def insert(
        self: Any,
        segments: Any,
        max_tokens: Any = None,
        caches: Any = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        for prompt, cache in zip(segments, caches or (), strict=False):
            if cache is not None and len(prompt[0]) > 1:
                hits.hit()
                prompt[0] = prompt[0][1:]
        return right(self, segments, max_tokens, caches, *more, **options)

    return insert


class _Aliased:
    """What was extracted of a live row follows what the row does next."""

    def __init__(self) -> None:
        self._taken: list[tuple[Any, int, Any]] = []

    def at_extract(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def extract(batch: Any, idx: int) -> Any:
            cache = right(batch, idx)
            self._taken.append((batch, idx, cache))
            return cache

        return extract

    def at_update(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def update(batch: Any, keys: mx.array, values: mx.array) -> Any:
            answer = right(batch, keys, values)
            for owner, idx, cache in self._taken:
                if owner is batch:
                    hits.hit()
                    cache.keys = mx.concatenate([cache.keys, keys[idx : idx + 1]], axis=2)
                    cache.values = mx.concatenate([cache.values, values[idx : idx + 1]], axis=2)
                    cache.offset = cache.keys.shape[2]
            return answer

        return update

    def at_change(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        # Rows get new numbers and buffers.
        def change(batch: Any, *args: Any) -> None:
            self._taken = [taken for taken in self._taken if taken[0] is not batch]
            right(batch, *args)

        return change


def _aliased(hits: Hits) -> Any:
    live = _Aliased()
    return all_of(
        exchange(BatchKVCache, "extract", live.at_extract),
        exchange(BatchKVCache, "update_and_fetch", live.at_update),
        exchange(BatchKVCache, "filter", live.at_change),
        exchange(BatchKVCache, "extend", live.at_change),
    )(hits)


FAULTS = (
    mlx_lm_fault(
        name="D9.restored-row-counts-from-zero",
        fault_class="prefix cache",
        source="a Swift engine's fork",
        summary="A row that goes on from a cache is rotated as if it had none.",
        needs=(ROPE, ATTENTION),
        kills=("prompt_cache",),
        where="cache:*:offset",
        inject=exchange_in(KV_CACHES, "merge", _from_zero),
    ),
    mlx_lm_fault(
        name="F4.entry-aliases-a-live-row",
        fault_class="prefix cache",
        source="issue trackers: prompt cache of a running request",
        summary="What was taken of a live row's cache grows with the row.",
        needs=(FULL,),
        kills=("prompt_cache",),
        where="cache:*",
        inject=_aliased,
    ),
    mlx_lm_fault(
        name="F5.one-token-too-few",
        fault_class="prefix cache",
        source="issue trackers: prompt cache off by one",
        summary="A cache that is taken out lacks its last token.",
        needs=(FULL,),
        kills=("prompt_cache",),
        where="cache:*",
        inject=exchange(BatchKVCache, "extract", _one_too_few),
    ),
    mlx_lm_fault(
        name="F5.one-token-too-many",
        fault_class="prefix cache",
        source="issue trackers: prompt cache off by one",
        summary="A request that goes on from a cache skips the first token that is not in it.",
        needs=(),
        kills=("prompt_cache",),
        where="input:tokens",
        inject=exchange(generate.BatchGenerator, "insert_segments", _one_too_many),
    ),
)
