"""Masks: attention to what is padding, or to what is outside of the window."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models import deepseek_v32
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.backend.shared_faults import ATTENTION_MODULE, of_row_0
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, before, together, wrap, wrap_each
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    ROTATING,
    mlx_lm_fault,
    padding_as,
)

_NEVER = 1 << 20  # wider than any window
_fault = partial(mlx_lm_fault, source="mlx-vlm #1030", where=ATTENTION_MODULE)
_misaligned = partial(_fault, fault_class="mask misalignment")


@_fault(
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


@_fault(
    "B6.mask-without-padding",
    fault_class="mask ignored",
    needs=(ATTENTION,),
    kills=("ragged", "chunked"),
)
def mask_without_padding(hits: Hits) -> Patch:
    """A list is passed where one cache was meant; the mask is made without its padding."""
    return padding_as(mx.zeros_like, hits)


@_fault(
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
