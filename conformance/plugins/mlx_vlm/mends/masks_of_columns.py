"""Masks and scales that all rows of a batch share."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.plugins.mlx_vlm.mends.kept_prefixes import merged_chunks

_LANGUAGES = ("mlx_vlm.models.qwen3_vl_moe.language", "mlx_vlm.models.qwen3_omni_moe.language")


@mend(
    "qwen3-vl-moe-mask-of-largest-offset",
    "qwen3-omni-moe-mask-of-largest-offset",
    "apc-mask-of-largest-offset",
)
def masks_have_all_columns(hits: Hits) -> Patch:
    """The mask has as many columns as the keys, and a row that is left alone has its own offset."""
    base = part("models.base")
    whole: list[Any] = []

    def attention(right: Right, self: Any, x: Any, mask: Any = None, *args: Any, **kw: Any) -> Any:
        whole.append(mask)
        try:
            return right(self, x, mask, *args, **kw)
        finally:
            whole.pop()

    def attend(right: Right, queries: Any, keys: Any, *args: Any, mask: Any, **kw: Any) -> Any:
        columns = base.kv_sequence_length(keys)
        if isinstance(mask, mx.array) and mask.shape[-1] < columns:
            hits.hit()
            mask = whole[-1][..., :columns]
        return right(queries, keys, *args, mask=mask, **kw)

    def offset(right: Right, cache: Any) -> int:
        found: int = right(cache)
        own = getattr(cache, "offset", None)
        if not isinstance(own, mx.array) or own.size != 1:
            return found
        row = int(own.max())
        hits.hit_if(row != found)
        return row

    languages = [importlib.import_module(name) for name in _LANGUAGES]
    return together(
        *(wrap(language.Attention, "__call__", attention) for language in languages),
        *(wrap(language, "scaled_dot_product_attention", attend) for language in languages),
        *(wrap(language, "cache_position_offset", offset) for language in languages),
    )


def _language(family: str) -> Any:
    return part(f"models.{family}.language")


def _of_rows(offset: Any) -> bool:
    return isinstance(offset, mx.array) and offset.ndim > 0


def _scales(offset: mx.array, size: int, beta: float, span: int) -> mx.array:
    """Of each row's queries, ``(rows, 1, size, 1)``; those of padding as a first token's."""
    positions = mx.maximum(offset[:, None] + mx.arange(size), 0)
    return (1 + beta * mx.log(1 + mx.floor(positions / span)))[:, None, :, None]


@mend("mistral3-scaling-of-row-0", "mistral3-scale-of-padding-on-cuda")
def queries_are_scaled_by_their_row(hits: Hits) -> Patch:
    """Queries are scaled by their own row's position, those of padding as a first token's."""
    modules = [_language("mistral3"), _language("mistral4")]
    call = threading.local()

    def model(
        right: Right, self: Any, inputs: Any, cache: Any = None, inputs_embeds: Any = None
    ) -> Any:
        offset: Any = None if cache is None or cache[0] is None else cache[0].offset
        call.offset = offset + 0 if _of_rows(offset) else None
        return right(self, inputs, cache, inputs_embeds)

    def scale(right: Right, start: int, stop: int, beta: float, span: int) -> Any:
        if call.offset is None:
            return right(start, stop, beta, span)
        hits.hit()
        return _scales(call.offset, stop - start, beta, span)

    return together(
        wrap(modules[0].Ministral3, "__call__", model),
        wrap(modules[1].Mistral4Model, "__call__", model),
        *(wrap(module, "_get_llama_4_attn_scale", scale) for module in modules),
    )


@mend("ministral3-scale-of-padding-on-cuda")
def padding_is_scaled_as_a_first_token(hits: Hits) -> Patch:
    """Queries of padding are scaled as a first token's, not by the logarithm of zero."""

    def scale(right: Right, size: int, offset: Any, beta: float, span: int) -> Any:
        if not _of_rows(offset):
            return right(size, offset, beta, span)
        hits.hit()
        return _scales(offset, size, beta, span)

    return wrap(_language("ministral3"), "_get_llama_4_attn_scale", scale)


@mend(
    "llama4-chunks-of-columns",
    "llama4-chunks-of-columns-left-alone",
    "llama4-chunks-of-columns-images",
)
def chunks_are_of_rows(hits: Hits) -> Patch:
    """The chunks' mask and the queries' scale are each row's own; any row can be joined."""
    module = _language("llama4")
    call = threading.local()

    def model(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        call.cache = options.get("cache")
        return right(self, *args, **options)

    def mask(right: Right, self: Any, columns: int, chunk: int, *args: Any) -> Any:
        cache = call.cache and call.cache[0]
        if cache is None or not _of_rows(cache.offset):
            return right(self, columns, chunk, *args)
        hits.hit()
        causal = cache.make_mask(columns, return_array=True)
        keys = mx.arange(causal.shape[-1]) - cache.left_padding[:, None, None, None]
        queries = keys[..., -columns:].swapaxes(-1, -2)
        return causal & (keys // chunk == queries // chunk)

    def attention(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        call.scales = None
        offset: Any = getattr(cache, "offset", 0)
        if self.use_rope or not self.attn_temperature_tuning or not _of_rows(offset):
            return right(self, x, mask, cache)
        hits.hit()
        positions = mx.maximum(offset[:, None] + mx.arange(x.shape[1]), 0)
        spans = mx.floor((positions + 1) / self.floor_scale)
        scales = mx.log(spans + 1.0) * self.attn_scale + 1.0
        call.scales = scales[:, None, :, None]
        with replace(self, "attn_temperature_tuning", False):
            return right(self, x, mask, cache)

    def attend(right: Right, queries: mx.array, *args: Any, **options: Any) -> Any:
        if call.scales is not None:
            queries = (queries * call.scales).astype(queries.dtype)
        return right(queries, *args, **options)

    chunked = part("models.cache").ChunkedKVCache
    return together(
        # The cache of a row that was prefilled alone, which the generator refuses to join.
        replace(chunked, "merge", staticmethod(merged_chunks)),
        wrap(module.LlamaModel, "__call__", model),
        wrap(module.LlamaModel, "create_chunked_attention_mask", mask),
        wrap(module.Attention, "__call__", attention),
        wrap(module, "scaled_dot_product_attention", attend),
    )


@mend("gemma2-mask-of-five-axes")
def masks_have_an_axis_of_groups(hits: Hits) -> Patch:
    """The batch's mask gets an axis for the queries of a group, as the scores have one."""

    def attention(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        if self.repeats > 1 and isinstance(mask, mx.array) and mask.ndim == 4:
            hits.hit()
            mask = mx.expand_dims(mask, 2)
        return right(self, x, mask, cache)

    return wrap(_language("gemma2").Attention, "__call__", attention)


@mend("inkling-mask-beyond-float16", "inkling-mask-beyond-float16-joint")
def padding_attends_to_something(hits: Hits) -> Patch:
    """A query of padding, whose keys are all masked by -inf, attends to all of them instead."""
    language = part("models.inkling.language")

    def masked(right: Right, *args: Any, **options: Any) -> mx.array:
        mask: mx.array = right(*args, **options)
        if mask.dtype != mx.float16:
            return mask
        blind = (mask == -mx.inf).all(axis=-1, keepdims=True)
        hits.hit_if(bool(blind.any()))
        return mx.where(blind, mx.zeros_like(mask), mask)

    return wrap(language, "banded_additive_mask", masked)
