"""The attention itself: what masked positions weigh, other kernels, factors over the wrong axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import ATTENTION_MODULE, masked_with
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap, wrap_each
from conformance.power.faults.mlx_lm.tools import ATTENTION, KV_CACHES, mlx_lm_fault

_ATTEND = "scaled_dot_product_attention"
_fault = partial(mlx_lm_fault, needs=(ATTENTION,), where=ATTENTION_MODULE)
_fill = partial(
    _fault, fault_class="mask fill", source="a Swift engine's fork", kills=("ragged", "identical")
)


@_fault(
    "B17.layer-factor-over-the-rows",
    fault_class="broadcast",
    source="mlx-vlm #1030",
    kills=("identical",),
)
def layer_factor_over_the_rows(hits: Hits) -> Patch:
    """A factor that is meant for layers is broadcast over the rows of the batch."""

    def attend(right: Right, q: mx.array, *args: Any, **options: Any) -> Any:
        rows = q.shape[0]
        if rows > 1:
            hits.hit()
            q = q * (1 + 0.05 * mx.arange(rows, dtype=q.dtype))[:, None, None, None]
        return right(q, *args, **options)

    return wrap(mx.fast, _ATTEND, attend)


@_fill("D1.fill-of-the-wrong-sign")
def fill_of_the_wrong_sign(hits: Hits) -> Patch:
    """What is masked gets a large positive score."""
    return masked_with(1e4, hits)


@_fill("D1.fill-with-the-smallest-number")
def fill_with_the_smallest_number(hits: Hits) -> Patch:
    """What is masked gets a tiny positive number as its score: it is attended."""
    return masked_with(1e-7, hits)


@_fault(
    "D2.true-mask-takes-another-kernel",
    fault_class="mask path",
    source="a Swift engine's fork",
    kills=("batch_of_one", "identical"),
)
def true_mask_takes_another_kernel(hits: Hits) -> Patch:
    """A mask at one token, though all true, takes a kernel of less precision."""

    def low(value: Any) -> Any:
        floating = isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating)
        return value.astype(mx.bfloat16) if floating else value

    def attend(right: Right, q: mx.array, k: mx.array, v: mx.array, **options: Any) -> Any:
        mask = options.get("mask")
        if q.shape[2] > 1 or not isinstance(mask, mx.array) or q.dtype == mx.bfloat16:
            return right(q, k, v, **options)
        hits.hit()
        options = {name: low(value) for name, value in options.items()}
        return right(low(q), low(k), low(v), **options).astype(q.dtype)

    return wrap(mx.fast, _ATTEND, attend)


@_fault(
    "F7.row-that-is-all-padding",
    fault_class="padding NaN",
    source="issue trackers: softmax over a fully masked row",
    kills=("batch_of_one", "ragged"),
)
def row_that_is_all_padding(hits: Hits) -> Patch:
    """A row with an empty cache masks its own token, too; a sum over nothing is NaN."""

    def make_mask(right: Right, self: Any, n: int, *args: Any, **options: Any) -> Any:
        mask = right(self, n, *args, **options)
        return mx.zeros_like(mask) if self.keys is None and n == 1 else mask

    def nan_of_nothing(out: Any, *_: Any, mask: Any = None, **__: Any) -> Any:
        if isinstance(mask, mx.array) and mask.dtype == mx.bool_:
            some = mask.any(axis=-1, keepdims=True)
            if not some.all().item():
                hits.hit()
                out = mx.where(some, out, mx.nan)
        return out

    return together(
        wrap_each(KV_CACHES, "make_mask", make_mask), after(mx.fast, _ATTEND, nan_of_nothing)
    )
