"""Rotating caches: a ring that is taken for a line, or for longer than it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import differs, exchange
from conformance.plugins.mlx_lm.faults.tools import ROTATING, mlx_lm_fault


def _ring_as_line(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extract(self: Any, idx: int) -> Any:
        rotated, end = self.rotated, self._idx
        if rotated and end < self.keys.shape[2]:
            hits.hit()
            self.rotated, self._idx = False, self.keys.shape[2]
        try:
            return right(self, idx)
        finally:
            self.rotated, self._idx = rotated, end

    return extract


def _size_by_tokens_seen(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def merge(cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        beyond = max(c.offset for c in caches) - cache.max_size
        if cache.keys is None or beyond <= 0:
            return cache
        hits.hit()
        fill = [(0, 0), (0, 0), (0, beyond), (0, 0)]
        cache.keys, cache.values = mx.pad(cache.keys, fill), mx.pad(cache.values, fill)
        cache._idx += beyond
        cache._offset += beyond
        return cache

    return merge


def _swapped(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def init(self: Any, max_size: Any, left_padding: Any) -> None:
        hits.hit()
        right(self, left_padding, max_size)

    return init


def _padding_unnoted(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def finalize(self: Any) -> None:
        before = mx.array(self.left_padding)  # it is changed in place
        right(self)
        if differs(before, self.left_padding):
            hits.hit()
            self.left_padding = before

    return finalize


FAULTS = (
    mlx_lm_fault(
        name="A8.merge-past-the-size",
        fault_class="cache merge",
        source="mlx-lm #1072",
        summary="Merged rotating caches are sized by the tokens seen, past what they hold.",
        needs=(ROTATING,),
        kills=("prompt_cache",),
        where="cache:*RotatingKVCache:*",
        inject=exchange(BatchRotatingKVCache, "merge", _size_by_tokens_seen),
    ),
    mlx_lm_fault(
        name="A7.rolled-without-its-padding",
        fault_class="lengths lost",
        source="mlx-lm #1072",
        summary="A rotating cache moves its rows to the right end and does not note their padding.",
        needs=(ROTATING,),
        kills=("ragged", "chunked"),
        where="cache:*RotatingKVCache:left_padding",
        inject=exchange(BatchRotatingKVCache, "finalize", _padding_unnoted),
    ),
    mlx_lm_fault(
        name="C7.arguments-swapped",
        fault_class="dispatch",
        source="mlx-vlm #1055",
        summary="A rotating batch cache is made with size and padding in the other order.",
        needs=(ROTATING,),
        kills=("batch_of_one",),
        where="crash:*cache.py*",
        inject=exchange(BatchRotatingKVCache, "__init__", _swapped),
        crash=True,
    ),
    mlx_lm_fault(
        name="F6.ring-sliced-as-a-line",
        fault_class="cache extract",
        source="issue trackers: prompt cache of a rotated window",
        summary="A rotating cache that has gone round is extracted as if it had not.",
        needs=(ROTATING,),
        kills=("prompt_cache",),
        where="cache:*RotatingKVCache:*",
        inject=exchange(BatchRotatingKVCache, "extract", _ring_as_line),
    ),
)
