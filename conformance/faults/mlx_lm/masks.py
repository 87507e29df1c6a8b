"""Masks: attention to what is padding, or to what is outside of the window."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx
from mlx_lm.models import deepseek_v32
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.faults.base import Hits
from conformance.faults.mlx_lm.tools import (
    ATTENTION,
    FULL,
    ROTATING,
    Injection,
    all_of,
    exchange,
    exchange_in,
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
        if n == 1 or not self._idx:
            return mask
        wrong = (mx.arange(mask.shape[-1]) < self._idx) | mask
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


def _filled_with(fill: Callable[[Any], float]) -> Injection:
    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def attend(q: mx.array, *args: Any, mask: Any = None, **options: Any) -> Any:
            if isinstance(mask, mx.array) and mask.dtype == mx.bool_:
                if not mask.all().item():
                    hits.hit()
                mask = mx.where(mask, 0.0, fill(mx.finfo(q.dtype))).astype(q.dtype)
            return right(q, *args, mask=mask, **options)

        return attend

    return exchange(mx.fast, "scaled_dot_product_attention", spoil)


def _another_kernel(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def low(value: Any) -> Any:
        floating = isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating)
        return value.astype(mx.bfloat16) if floating else value

    def attend(q: mx.array, k: mx.array, v: mx.array, **options: Any) -> Any:
        mask = options.get("mask")
        if q.shape[2] > 1 or not isinstance(mask, mx.array) or q.dtype == mx.bfloat16:
            return right(q, k, v, **options)
        hits.hit()
        options = {name: low(value) for name, value in options.items()}
        return right(low(q), low(k), low(v), **options).astype(q.dtype)

    return attend


def _over_the_rows(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def attend(q: mx.array, *args: Any, **options: Any) -> Any:
        rows = q.shape[0]
        if rows > 1:
            hits.hit()
            q = q * (1 + 0.05 * mx.arange(rows, dtype=q.dtype))[:, None, None, None]
        return right(q, *args, **options)

    return attend


def _nothing_to_see(right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
    def make_mask(self: Any, n: int, *args: Any, **options: Any) -> Any:
        mask = right(self, n, *args, **options)
        return mx.zeros_like(mask) if self.keys is None and n == 1 else mask

    return make_mask


def _nan_of_nothing(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def attend(*args: Any, mask: Any = None, **options: Any) -> Any:
        out = right(*args, mask=mask, **options)
        if isinstance(mask, mx.array) and mask.dtype == mx.bool_:
            some = mask.any(axis=-1, keepdims=True)
            if not some.all().item():
                hits.hit()
                out = mx.where(some, out, mx.nan)
        return out

    return attend


FAULTS = (
    mlx_lm_fault(
        name="A3.selection-ignores-the-mask",
        fault_class="mask ignored",
        source="mlx-lm #1072",
        summary="Sparse attention picks its keys in a batch's decode without the padding mask.",
        needs=("family:deepseek_v32|family:glm_moe_dsa",),
        kills=("ragged", "staggered", "window"),
        inject=exchange(deepseek_v32.Indexer, "__call__", _no_mask_in_decode),
    ),
    mlx_lm_fault(
        name="B5.mask-of-the-chunk-alone",
        fault_class="mask misalignment",
        source="mlx-vlm #1030",
        summary="The mask covers the new chunk only; padding in the cache before it is attended.",
        needs=(FULL,),
        kills=("prompt_cache",),
        inject=exchange(BatchKVCache, "make_mask", _cut_to_the_chunk),
    ),
    mlx_lm_fault(
        name="B6.mask-without-padding",
        fault_class="mask ignored",
        source="mlx-vlm #1030",
        summary="A list is passed where one cache was meant; the mask knows nothing of padding.",
        needs=(ATTENTION,),
        kills=("ragged", "chunked"),
        inject=padding(mx.zeros_like),
    ),
    mlx_lm_fault(
        name="B14.padding-of-row-0",
        fault_class="scalar/array dispatch",
        source="mlx-vlm #1030",
        summary="The first row's padding is masked in all rows.",
        needs=(ATTENTION,),
        kills=("ragged", "chunked"),
        inject=padding(lambda true: mx.broadcast_to(true[:1], true.shape)),
    ),
    mlx_lm_fault(
        name="B15.sliding-mask-for-full-layers",
        fault_class="mask misalignment",
        source="mlx-vlm #1030",
        summary="Layers with full attention get the mask of those with a sliding window.",
        needs=("window", FULL, ROTATING),
        kills=("ragged", "window"),
        inject=_sliding_for_all,
    ),
    mlx_lm_fault(
        name="B15.full-mask-for-sliding-layers",
        fault_class="mask misalignment",
        source="mlx-vlm #1030",
        summary="Layers with a sliding window get the mask of those with full attention.",
        needs=("window", ROTATING),
        kills=("ragged", "window"),
        inject=exchange(BatchRotatingKVCache, "make_mask", _full_for_sliding),
    ),
    mlx_lm_fault(
        name="B17.layer-factor-over-the-rows",
        fault_class="broadcast",
        source="mlx-vlm #1030",
        summary="A factor that is meant for layers is broadcast over the rows of the batch.",
        needs=(ATTENTION,),
        kills=("identical",),
        inject=exchange(mx.fast, "scaled_dot_product_attention", _over_the_rows),
    ),
    mlx_lm_fault(
        name="D1.fill-of-the-wrong-sign",
        fault_class="mask fill",
        source="a Swift engine's fork",
        summary="What is masked gets a large positive score.",
        needs=(ATTENTION,),
        kills=("ragged", "identical"),
        inject=_filled_with(lambda info: 1e4 if info.max > 1e4 else float(info.max)),
    ),
    mlx_lm_fault(
        name="D1.fill-with-the-smallest-number",
        fault_class="mask fill",
        source="a Swift engine's fork",
        summary="What is masked gets the smallest positive number as its score: it is attended.",
        needs=(ATTENTION,),
        kills=("ragged", "identical"),
        inject=_filled_with(lambda _: 1e-7),
    ),
    mlx_lm_fault(
        name="D2.true-mask-takes-another-kernel",
        fault_class="mask path",
        source="a Swift engine's fork",
        summary="A mask at one token, though all true, takes a kernel of less precision.",
        needs=(ATTENTION,),
        kills=("batch_of_one", "identical"),
        inject=exchange(mx.fast, "scaled_dot_product_attention", _another_kernel),
    ),
    mlx_lm_fault(
        name="F7.row-that-is-all-padding",
        fault_class="padding NaN",
        source="issue trackers: softmax over a fully masked row",
        summary="A row with an empty cache masks its own token, too; a sum over nothing is NaN.",
        needs=(ATTENTION,),
        kills=("batch_of_one", "ragged"),
        inject=all_of(
            exchange_in((BatchKVCache, BatchRotatingKVCache), "make_mask", _nothing_to_see),
            exchange(mx.fast, "scaled_dot_product_attention", _nan_of_nothing),
        ),
    ),
)
