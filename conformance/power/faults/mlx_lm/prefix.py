"""Caches that are taken out of a batch, and continued from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap_each
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    ROPE,
    generate,
    mlx_lm_fault,
)

_fault = partial(mlx_lm_fault, fault_class="prefix cache", kills=("prompt_cache",), where="cache:*")
_off_by_one = partial(_fault, source="issue trackers: prompt cache off by one")


@_fault(
    "D9.restored-row-counts-from-zero",
    source="a Swift engine's fork",
    needs=(ROPE, ATTENTION),
    where="cache:*:offset",
)
def restored_row_counts_from_zero(hits: Hits) -> Patch:
    """A row that continues from a cache is rotated as if it had none."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        if any(c.size() for c in caches):
            hits.hit()
            cache.offset = mx.zeros_like(cache.offset)
        return cache

    return wrap_each(KV_CACHES, "merge", merge)


@_fault(
    "F4.entry-aliases-a-live-row",
    source="issue trackers: prompt cache of a running request",
    needs=(FULL,),
)
def entry_aliases_a_live_row(hits: Hits) -> Patch:
    """What was taken of a live row's cache grows with the row."""
    taken: list[tuple[Any, int, Any]] = []

    def note(cache: Any, batch: Any, idx: int) -> Any:
        taken.append((batch, idx, cache))
        return cache

    def grow(answer: Any, batch: Any, keys: mx.array, values: mx.array) -> Any:
        for owner, idx, cache in taken:
            if owner is batch:
                hits.hit()
                cache.keys = mx.concatenate([cache.keys, keys[idx : idx + 1]], axis=2)
                cache.values = mx.concatenate([cache.values, values[idx : idx + 1]], axis=2)
                cache.offset = cache.keys.shape[2]
        return answer

    def forget(batch: Any, *_: Any) -> None:
        # Rows get new numbers and buffers.
        taken[:] = [entry for entry in taken if entry[0] is not batch]

    return together(
        after(BatchKVCache, "extract", note),
        after(BatchKVCache, "update_and_fetch", grow),
        before(BatchKVCache, "filter", forget),
        before(BatchKVCache, "extend", forget),
    )


@_off_by_one("F5.one-token-too-few", needs=(FULL,))
def one_token_too_few(hits: Hits) -> Patch:
    """A cache that is taken out lacks its last token."""

    def trimmed(cache: Any, *_: Any) -> Any:
        hits.hit()
        cache.trim(1)
        return cache

    return after(BatchKVCache, "extract", trimmed)


@_off_by_one("F5.one-token-too-many", where="input:tokens")
def one_token_too_many(hits: Hits) -> Patch:
    """A request that continues from a cache skips the first token that is not in it."""

    def skip(
        _: Any, segments: Any, __: Any = None, caches: Any = None, *___: Any, **____: Any
    ) -> None:
        for prompt, cache in zip(segments, caches or (), strict=False):
            if cache is not None and len(prompt[0]) > 1:
                hits.hit()
                prompt[0] = prompt[0][1:]

    return before(generate.BatchGenerator, "insert_segments", skip)
