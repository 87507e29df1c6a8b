"""Defects of MiniMax-M3: its sparse layers, and the positions of rows."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.plugins.mlx_vlm.mends.kept_positions import deltas_of_these_rows


@mend("minimax-m3-not-causal", "minimax-m3-not-causal-text", "minimax-m3-not-causal-media")
def padding_masks_are_causal(hits: Hits) -> Patch:
    """The causal mask is merged into the padding mask of sparse layers too, with any positions."""
    attention = part("models.minimax_m3_vl.language").MiniMaxAttention
    right = attention._normalize_attention_mask

    def normalized(
        mask: Any, rows: int, new: int, total: int, *, causal: bool | None = None
    ) -> Any:
        # Only the call of the layer itself says whether to merge; others have merged masks.
        if causal is False and new > 1:
            hits.hit_if(isinstance(mask, mx.array))
            causal = True
        return right(mask, rows, new, total, causal=bool(causal))

    return replace(attention, "_normalize_attention_mask", staticmethod(normalized))


@mend("minimax-m3-offset-in-place", "minimax-m3-offset-in-place-media")
def offsets_are_not_counted_in_place(hits: Hits) -> Patch:
    """The indexer rotates by the offset from before the new tokens, as queries and keys do."""
    language = part("models.minimax_m3_vl.language")

    def called(right: Right, self: Any, *args: Any, position_ids: Any = None) -> Any:
        batch = any(isinstance(arg, language.MiniMaxM3BatchKVCache) for arg in args)
        hits.hit_if(batch and position_ids is None and self.has_sparse_index)
        return right(self, *args, position_ids=position_ids)

    def updated(right: Right, self: Any, keys: Any, values: Any) -> Any:
        self.kv_cache.offset = self.kv_cache.offset + 0
        return right(self, keys, values)

    return together(
        wrap(language.MiniMaxAttention, "__call__", called),
        wrap(language.MiniMaxM3BatchKVCache, "update_and_fetch", updated),
    )


@mend("minimax-m3-clamped-positions", "minimax-m3-clamped-positions-media")
def positions_of_padding_stay_negative(hits: Hits) -> Patch:
    """A row whose offset is negative, as its padding has not ended, has positions from there on."""
    return _positions_of_rows(hits, lambda offset: offset < 0)


@mend("minimax-m3-restarted-positions", "minimax-m3-restarted-positions-media")
def positions_go_on(hits: Hits) -> Patch:
    """Positions go on at the rows' offsets, also while the model knows no rope deltas."""
    return _positions_of_rows(hits, lambda offset: offset >= 0)


def _positions_of_rows(hits: Hits, concerned: Any) -> Patch:
    """The positions of the rows concerned are counted from their offsets."""

    def called(right: Right, self: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        cache, positions = options.get("cache"), options.get("position_ids")
        offset = getattr(cache[0], "offset", None) if cache else None
        if positions is not None and isinstance(offset, mx.array) and offset.ndim:
            counted = offset[:, None] + mx.arange(positions.shape[1])
            counted = mx.where(concerned(offset)[:, None], counted, positions)
            hits.hit_if(bool((counted != positions).any()))
            options["position_ids"] = counted.astype(positions.dtype)
        return right(self, inputs, *args, **options)

    return wrap(part("models.minimax_m3_vl.language").MiniMaxM3Model, "__call__", called)


@mend("minimax-m3-deltas-of-other-rows", "minimax-m3-deltas-of-other-rows-media")
def a_prefill_has_its_own_deltas(hits: Hits) -> Patch:
    """Prompts, whose positions are plain, take no deltas of the rows prefilled before them."""
    return deltas_of_these_rows(hits, part("models.minimax_m3_vl.language").LanguageModel)


@mend("minimax-m3-blocks-of-columns", "minimax-m3-blocks-of-columns-media")
def blocks_are_cut_from_the_first_token(hits: Hits) -> Patch:
    """Blocks of keys are cut from the row's first token on, and not from the first column."""
    language = part("models.minimax_m3_vl.language")
    attention, indexer = language.MiniMaxAttention, language.MiniMaxM3Indexer
    layer = threading.local()

    def called(right: Right, self: Any, x: Any, mask: Any, cache: Any, **options: Any) -> Any:
        padding: Any = getattr(cache, "left_padding", None)
        padded = isinstance(padding, mx.array) and bool((padding[: x.shape[0]] != 0).any())
        layer.padding = padding[: x.shape[0], None] if padded else None
        return right(self, x, mask, cache, **options)

    def select(right: Right, self: Any, queries: Any, keys: Any, *args: Any) -> Any:
        if layer.padding is None:
            return right(self, queries, keys, *args)
        hits.hit_if(bool((layer.padding % self.block_size).any()))
        start, mask, positions = args
        keys = language.dynamic_roll(keys, -layer.padding, axis=2)
        positions = positions - layer.padding
        return right(self, queries, keys, start, rolled(mask, -layer.padding), positions)

    def build(right: Right, self: Any, blocks: Any, mask: Any, *args: Any) -> Any:
        if layer.padding is None:
            return right(self, blocks, mask, *args)
        length, dtype, positions = args
        kept = right(self, blocks, None, length, dtype, positions - layer.padding)
        return self.attention._merge_sparse_mask(rolled(kept, layer.padding), mask)

    def decode(right: Right, self: Any, queries: Any, *args: Any) -> Any:
        if layer.padding is None:
            return right(self, queries, *args)
        keys, values, blocks, mask, positions = args
        keys, values = (
            language.dynamic_roll(each, -layer.padding, axis=2) for each in (keys, values)
        )
        mask, positions = rolled(mask, -layer.padding), positions - layer.padding
        return right(self, queries, keys, values, blocks, mask, positions)

    def rolled(mask: Any, shift: mx.array) -> Any:
        if not isinstance(mask, mx.array):
            return mask
        mask = mx.broadcast_to(mask, (shift.shape[0], *mask.shape[1:]))
        columns = mx.arange(mask.shape[-1]) - shift
        columns = (columns % mask.shape[-1])[:, None, None, :]
        return mx.take_along_axis(mask, columns, axis=-1)

    return together(
        wrap(attention, "__call__", called),
        wrap(attention, "_sparse_decode_attention", decode),
        wrap(indexer, "select_blocks", select),
        wrap(indexer, "build_block_mask", build),
    )
