"""Attention: masks, what masked positions weigh, other kernels, NaN at masked steps."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models import deepseek_v32
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap, wrap_each
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    RECURRENT,
    ROTATING,
    mlx_lm_fault,
    padding_as,
)
from conformance.power.faults.shared_faults import (
    ATTENTION_MODULE,
    RECURRENT_MODULE,
    masked_with,
    of_row_0,
)

_NEVER = 1 << 20  # wider than any window
_mask = partial(mlx_lm_fault, source="mlx-vlm #1030", where=ATTENTION_MODULE)
_misaligned = partial(_mask, fault_class="mask misalignment")


@_mask(
    "A3.selection-ignores-the-mask",
    fault_class="mask ignored",
    source="mlx-lm #1072",
    needs=("family:deepseek_v32|family:glm_moe_dsa",),
    kills=("ragged", "staggered", "window"),
    where=f"{ATTENTION_MODULE}|module:*Indexer",
)
def selection_ignores_the_mask(hits: Hits) -> Patch:
    """Sparse attention picks its keys in a batch's decode without the padding mask."""

    def select(right: Right, self: Any, x: mx.array, qr: mx.array, mask: Any, **more: Any) -> Any:
        if mask is not None and x.shape[0] > 1 and x.shape[1] == 1:
            hits.hit_if(not mask.all().item())
            mask = None
        return right(self, x, qr, mask, **more)

    return wrap(deepseek_v32.Indexer, "__call__", select)


@_misaligned("B5.mask-of-the-chunk-alone", needs=(ATTENTION,), kills=("prompt_cache",))
def mask_of_the_chunk_alone(hits: Hits) -> Patch:
    """The mask covers the new chunk only; padding in the cache before it is attended."""

    def make_mask(right: Right, self: Any, n: int, *args: Any, **options: Any) -> Any:
        mask = right(self, n, *args, **options)
        if n == 1 or mask.shape[-1] == n:
            return mask
        wrong = (mx.arange(mask.shape[-1]) < mask.shape[-1] - n) | mask
        hits.hit_if((wrong != mask).any().item())
        return wrong

    return wrap_each(KV_CACHES, "make_mask", make_mask)


@_mask(
    "B6.mask-without-padding",
    fault_class="mask ignored",
    needs=(ATTENTION,),
    kills=("ragged", "chunked"),
)
def mask_without_padding(hits: Hits) -> Patch:
    """A list is passed where one cache was meant; the mask is made without its padding."""
    return padding_as(mx.zeros_like, hits)


@_mask(
    "B14.padding-of-row-0",
    fault_class="scalar/array dispatch",
    needs=(ATTENTION,),
    kills=("ragged", "chunked"),
)
def padding_of_row_0(hits: Hits) -> Patch:
    """The first row's padding is masked in all rows."""
    return padding_as(of_row_0, hits)


@_misaligned(
    "B15.sliding-mask-for-full-layers",
    needs=("window", FULL, ROTATING),
    kills=("ragged", "window"),
)
def sliding_mask_for_full_layers(hits: Hits) -> Patch:
    """Layers with full attention get the mask of those with a sliding window."""
    windows: list[int] = []

    def note(_: Any, max_size: int, *__: Any, **___: Any) -> None:
        windows.append(max_size)

    def make_mask(right: Right, self: Any, n: int, *args: Any, **options: Any) -> Any:
        if windows and not options.get("window_size"):
            options["window_size"] = windows[-1]
            hits.hit_if(self._idx + n > windows[-1])
        return right(self, n, *args, **options)

    return together(
        before(BatchRotatingKVCache, "__init__", note), wrap(BatchKVCache, "make_mask", make_mask)
    )


@_misaligned(
    "B15.full-mask-for-sliding-layers", needs=("window", ROTATING), kills=("ragged", "window")
)
def full_mask_for_sliding_layers(hits: Hits) -> Patch:
    """Layers with a sliding window get the mask of those with full attention."""

    def make_mask(right: Right, self: Any, n: int, *args: Any, **options: Any) -> Any:
        if n > 1:
            hits.hit_if(min(self.max_size - 1, self._offset) + n > self.max_size)
            options["window_size"] = _NEVER
        return right(self, n, *args, **options)

    return wrap(BatchRotatingKVCache, "make_mask", make_mask)


_ATTEND = "scaled_dot_product_attention"
_attention = partial(mlx_lm_fault, needs=(ATTENTION,), where=ATTENTION_MODULE)
_fill = partial(
    _attention,
    fault_class="mask fill",
    source="a Swift engine's fork",
    kills=("ragged", "identical"),
)


@_attention(
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


@_attention(
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


@_attention(
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


_nan = partial(
    mlx_lm_fault,
    fault_class="padding NaN",
    source="mlx-lm #1072",
    needs=(RECURRENT, ATTENTION),
    kills=("ragged", "chunked", "window"),
    where=f"{RECURRENT_MODULE}|{ATTENTION_MODULE}",
)


def _recurrent_layers() -> list[type]:
    """Of all models that are loaded: each class whose call moves a recurrent cache on."""
    found = {
        kind
        for name, module in list(sys.modules.items())
        if name.startswith("mlx_lm.models.")
        for kind in vars(module).values()
        if isinstance(kind, type) and inspect.isfunction(call := vars(kind).get("__call__"))
        if {"mask", "cache"} <= set(call.__code__.co_varnames)
        if "advance" in call.__code__.co_names
    }
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def _masked_steps(change: Callable[[mx.array], mx.array], hits: Hits) -> Patch:
    """Where a step is masked, a recurrent layer gives ``change(output)``."""

    def call(right: Right, *args: Any, **options: Any) -> Any:
        out = right(*args, **options)
        mask = inspect.signature(right).bind(*args, **options).arguments.get("mask")
        if mask is not None and not mask.all().item():
            hits.hit()
            out = mx.where(mask[..., None], out, change(out))
        return out

    return wrap_each(_recurrent_layers(), "__call__", call)


@_nan("A2.masked-steps-nan")
def masked_steps_nan(hits: Hits) -> Patch:
    """Masked steps leave NaN in a recurrent layer's output; attention comes next."""
    return _masked_steps(lambda out: mx.full(out.shape, mx.nan, out.dtype), hits)


def harmless(hits: Hits) -> Patch:
    """Masked steps get other rows' output, which is no defect as long as that is finite.

    What is masked has weight 0, and no state takes it in.
    """
    return _masked_steps(lambda out: mx.concatenate([out[1:], out[:1]]), hits)
