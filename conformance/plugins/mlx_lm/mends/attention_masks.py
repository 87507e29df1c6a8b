"""Attention masks whose axes, blocks or windows do not match the kept keys."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.backend.block_sparse import blocks_of_positions
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_lm.probed_packages import found


@mend("gemma2-mask-of-kv-heads", "reference-gemma2-mask-of-kv-heads")
def gemma2_masks_have_five_axes(hits: Hits) -> Patch:
    """The mask's rows lie over the rows of the scores, which have an axis more."""
    gemma2 = importlib.import_module("mlx_lm.models.gemma2")

    def call(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        if mask is not None and mask.ndim == 4 and self.repeats > 1:
            hits.hit_if(mask.shape[0] > 1)
            mask = mask[:, :, None]
        return right(self, x, mask, cache)

    return wrap(gemma2.Attention, "__call__", call)


@mend(
    "plamo3-window-width",
    "reference-plamo3-window-width-padded-solo",
    "reference-plamo3-window-width-mixed",
    single_stream=True,
)
def masks_are_as_wide_as_the_cache(hits: Hits) -> Patch:
    """A query of a sliding layer sees as many keys as the layer's cache keeps."""
    plamo3 = importlib.import_module("mlx_lm.models.plamo3")

    def create(right: Right, *args: Any, window_size: int | None = None, **options: Any) -> Any:
        hits.hit_if(window_size)
        return right(*args, window_size=window_size and window_size - 1, **options)

    return wrap(plamo3, "create_attention_mask", create)


@mend(
    "phi3small-block-sparse-mask",
    "reference-phi3small-block-sparse-mask-mixed-padded",
    "reference-phi3small-block-sparse-mask-solo",
    single_stream=True,
)
def blocks_are_of_positions(hits: Hits) -> Patch:
    """The causal mask hides the keys where it is false, and blocks are cut over positions."""
    return blocks_of_positions(importlib.import_module("mlx_lm.models.phi3small").Attention, hits)


@mend(
    "minimax-m3-vl-blocks-of-slots",
    "minimax-m3-vl-blocks-of-slots-behind-leaks",
    "reference-minimax-m3-vl-blocks-of-slots",
)
def blocks_begin_with_the_row(hits: Hits) -> Patch:
    """The key blocks of sparse attention are cut from each row's first token on."""
    minimax = importlib.import_module("mlx_lm.models.minimax_m3_vl")

    def block_mask(right: Right, self: Any, *args: Any) -> Any:
        x, mask, offset, cache = args
        if not isinstance(offset, mx.array) or offset.size < 2:
            return right(self, *args)
        hits.hit()
        rows, columns, _ = x.shape
        keys = self.index_k_proj(x).reshape(rows, columns, 1, self.index_head_dim)
        keys = self.index_rope(self.index_k_norm(keys).swapaxes(1, 2), offset=offset)
        firsts, begins = _first_slots(cache, rows), list(map(int, offset))
        keys, _ = cache.update_and_fetch(keys, mx.zeros((rows, 1, columns, 0), keys.dtype))
        slots, found = keys.shape[2], []
        for row, (first, at) in enumerate(zip(firsts, begins, strict=True)):
            own = slice(row, row + 1)
            width = at + columns
            behind = max(0, first + width - slots)  # only padding
            row_keys = keys[own, :, first : first + width]
            row_mask = mask[own, ..., first : first + width]
            kept = right(
                self,
                x[own],
                mx.pad(row_mask, [(0, 0), (0, 0), (0, 0), (0, behind)]),
                at,
                _Fetched(mx.pad(row_keys, [(0, 0), (0, 0), (0, behind), (0, 0)])),
            )[..., : width - behind]
            sides = (first, slots - first - width + behind)
            kept = mx.pad(kept, [(0, 0), (0, 0), (0, 0), sides])
            found.append(mx.broadcast_to(kept, (1, self.num_attention_heads, columns, slots)))
        return mx.concatenate(found)

    return wrap(minimax.Attention, "_block_mask", block_mask)


def _first_slots(cache: Any, rows: int) -> list[int]:
    """The cache slot of each row's first token."""
    padding = getattr(cache, "left_padding", None)
    return [0] * rows if padding is None else list(padding.tolist())


class _Fetched:
    """A cache of one row that already has the new keys."""

    def __init__(self, keys: mx.array) -> None:
        self._keys = keys

    def update_and_fetch(self, _: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """All keys of the row."""
        return self._keys, values


@mend("olmo-mask-by-name", "reference-olmo-mask-by-name", single_stream=True)
def masks_are_added_as_numbers(hits: Hits) -> Patch:
    """What is added to the scores is 0 where a key is seen, and the least number elsewhere."""
    with found("olmo"):
        olmo = importlib.import_module("mlx_lm.models.olmo")

    def create(right: Right, h: mx.array, cache: Any = None) -> Any:
        seen = right(h, cache, return_array=True)
        if seen is None:
            return None
        hits.hit()
        return mx.where(seen, mx.array(0, h.dtype), mx.array(mx.finfo(h.dtype).min, h.dtype))

    return wrap(olmo, "create_attention_mask", create)
