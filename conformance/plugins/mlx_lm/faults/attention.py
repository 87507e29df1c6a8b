"""The attention itself: what masked positions weigh, other kernels, factors over the wrong axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import Injection, all_of, exchange, exchange_in
from conformance.plugins.mlx_lm.faults.tools import ATTENTION, KV_CACHES, mlx_lm_fault


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


def _all_masked(right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
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
        name="B17.layer-factor-over-the-rows",
        fault_class="broadcast",
        source="mlx-vlm #1030",
        summary="A factor that is meant for layers is broadcast over the rows of the batch.",
        needs=(ATTENTION,),
        kills=("identical",),
        where="module:*ttention",
        inject=exchange(mx.fast, "scaled_dot_product_attention", _over_the_rows),
    ),
    mlx_lm_fault(
        name="D1.fill-of-the-wrong-sign",
        fault_class="mask fill",
        source="a Swift engine's fork",
        summary="What is masked gets a large positive score.",
        needs=(ATTENTION,),
        kills=("ragged", "identical"),
        where="module:*ttention",
        inject=_filled_with(lambda info: 1e4 if info.max > 1e4 else float(info.max)),
    ),
    mlx_lm_fault(
        name="D1.fill-with-the-smallest-number",
        fault_class="mask fill",
        source="a Swift engine's fork",
        summary="What is masked gets the smallest positive number as its score: it is attended.",
        needs=(ATTENTION,),
        kills=("ragged", "identical"),
        where="module:*ttention",
        inject=_filled_with(lambda _: 1e-7),
    ),
    mlx_lm_fault(
        name="D2.true-mask-takes-another-kernel",
        fault_class="mask path",
        source="a Swift engine's fork",
        summary="A mask at one token, though all true, takes a kernel of less precision.",
        needs=(ATTENTION,),
        kills=("batch_of_one", "identical"),
        where="module:*ttention",
        inject=exchange(mx.fast, "scaled_dot_product_attention", _another_kernel),
    ),
    mlx_lm_fault(
        name="F7.row-that-is-all-padding",
        fault_class="padding NaN",
        source="issue trackers: softmax over a fully masked row",
        summary="A row with an empty cache masks its own token, too; a sum over nothing is NaN.",
        needs=(ATTENTION,),
        kills=("batch_of_one", "ragged"),
        where="module:*ttention",
        inject=all_of(
            exchange_in(KV_CACHES, "make_mask", _all_masked),
            exchange(mx.fast, "scaled_dot_product_attention", _nan_of_nothing),
        ),
    ),
)
