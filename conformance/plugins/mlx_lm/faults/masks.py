"""Masks: attention to what is padding, or to what is outside of the window."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx
from mlx_lm.models import deepseek_v32
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import all_of, exchange, exchange_in
from conformance.plugins.mlx_lm.faults.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    ROTATING,
    mlx_lm_fault,
    padding,
)

_NEVER = 1 << 20  # wider than any window


def _no_mask_in_decode(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def select(self: Any, x: mx.array, qr: mx.array, mask: Any, cache: Any = None) -> Any:
        if mask is not None and x.shape[0] > 1 and x.shape[1] == 1:
            if not mask.all().item():
                hits.hit()
            mask = None
        return right(self, x, qr, mask, cache=cache)

    return select


def _cut_to_the_chunk(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def make_mask(self: Any, n: int, *args: Any, **options: Any) -> Any:
        mask = right(self, n, *args, **options)
        if n == 1 or mask.shape[-1] == n:
            return mask
        wrong = (mx.arange(mask.shape[-1]) < mask.shape[-1] - n) | mask
        if (wrong != mask).any().item():
            hits.hit()
        return wrong

    return make_mask


def _sliding_for_all(hits: Hits) -> AbstractContextManager[None]:
    windows: list[int] = []

    def note(right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def init(self: Any, max_size: int, left_padding: list[int]) -> None:
            windows.append(max_size)
            right(self, max_size, left_padding)

        return init

    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def make_mask(self: Any, n: int, *args: Any, **options: Any) -> Any:
            if windows and not options.get("window_size"):
                options["window_size"] = windows[-1]
                if self._idx + n > windows[-1]:
                    hits.hit()
            return right(self, n, *args, **options)

        return make_mask

    return all_of(
        exchange(BatchRotatingKVCache, "__init__", note),
        exchange(BatchKVCache, "make_mask", spoil),
    )(hits)


def _full_for_sliding(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def make_mask(self: Any, n: int, *args: Any, **options: Any) -> Any:
        if n > 1:
            if min(self.max_size - 1, self._offset) + n > self.max_size:
                hits.hit()
            options["window_size"] = _NEVER
        return right(self, n, *args, **options)

    return make_mask


FAULTS = (
    mlx_lm_fault(
        name="A3.selection-ignores-the-mask",
        fault_class="mask ignored",
        source="mlx-lm #1072",
        summary="Sparse attention picks its keys in a batch's decode without the padding mask.",
        needs=("family:deepseek_v32|family:glm_moe_dsa",),
        kills=("ragged", "staggered", "window"),
        where="module:*ttention|module:*Indexer",
        inject=exchange(deepseek_v32.Indexer, "__call__", _no_mask_in_decode),
    ),
    mlx_lm_fault(
        name="B5.mask-of-the-chunk-alone",
        fault_class="mask misalignment",
        source="mlx-vlm #1030",
        summary="The mask covers the new chunk only; padding in the cache before it is attended.",
        needs=(ATTENTION,),
        kills=("prompt_cache",),
        where="module:*ttention",
        inject=exchange_in(KV_CACHES, "make_mask", _cut_to_the_chunk),
    ),
    mlx_lm_fault(
        name="B6.mask-without-padding",
        fault_class="mask ignored",
        source="mlx-vlm #1030",
        summary="A list is passed where one cache was meant; the mask knows nothing of padding.",
        needs=(ATTENTION,),
        kills=("ragged", "chunked"),
        where="module:*ttention",
        inject=padding(mx.zeros_like),
    ),
    mlx_lm_fault(
        name="B14.padding-of-row-0",
        fault_class="scalar/array dispatch",
        source="mlx-vlm #1030",
        summary="The first row's padding is masked in all rows.",
        needs=(ATTENTION,),
        kills=("ragged", "chunked"),
        where="module:*ttention",
        inject=padding(lambda true: mx.broadcast_to(true[:1], true.shape)),
    ),
    mlx_lm_fault(
        name="B15.sliding-mask-for-full-layers",
        fault_class="mask misalignment",
        source="mlx-vlm #1030",
        summary="Layers with full attention get the mask of those with a sliding window.",
        needs=("window", FULL, ROTATING),
        kills=("ragged", "window"),
        where="module:*ttention",
        inject=_sliding_for_all,
    ),
    mlx_lm_fault(
        name="B15.full-mask-for-sliding-layers",
        fault_class="mask misalignment",
        source="mlx-vlm #1030",
        summary="Layers with a sliding window get the mask of those with full attention.",
        needs=("window", ROTATING),
        kills=("ragged", "window"),
        where="module:*ttention",
        inject=exchange(BatchRotatingKVCache, "make_mask", _full_for_sliding),
    ),
)
