"""Positions and masks that take one offset for the rows of a batch."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend


def _language(family: str) -> Any:
    return importlib.import_module(f"mlx_vlm.models.{family}.language")


def _of_rows(offset: Any) -> bool:
    return isinstance(offset, mx.array) and offset.ndim > 0


def _rope_of_rows(hits: Hits, owner: Any) -> Patch:
    """A rope that takes a number: each row is rotated by its own."""

    def rotated(right: Right, self: Any, x: mx.array, offset: Any = 0) -> Any:
        if not _of_rows(offset):
            return right(self, x, offset)
        hits.hit()
        each: Any = offset.tolist()
        rows = [right(self, x[row : row + 1], of) for row, of in enumerate(each)]
        return mx.concatenate(rows)

    return wrap(owner, "__call__", rotated)


@mend("jina-vlm-rope-of-longest-row")
def jina_vlm_rotates_each_row(hits: Hits) -> Patch:
    """Each row is rotated by its own offset."""
    return _rope_of_rows(hits, _language("jina_vlm").RoPE)


@mend("offset-of-rows-as-one-number")
def offsets_are_of_rows(hits: Hits) -> Patch:
    """Positions, masks and rope's base come from each row's own offset."""
    return together(
        _rope_of_rows(hits, _language("internlm2").DynamicNTKScalingRoPE),
        _rope_of_rows(hits, _language("internlm3").DynamicNTKScalingRoPE),
        _gpt_bigcode(hits),
        _limite(hits),
    )


def _gpt_bigcode(hits: Hits) -> Patch:
    """Learned positions: those of padding are some that are there."""
    module = _language("gpt_bigcode")

    def model(
        right: Right, self: Any, inputs: mx.array, cache: Any = None, inputs_embeds: Any = None
    ) -> Any:
        if cache is None or not _of_rows(cache[0].offset):
            return right(self, inputs, cache, inputs_embeds)
        hits.hit()
        hidden = self.wte(inputs) if inputs_embeds is None else inputs_embeds
        positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        hidden = hidden + self.wpe(mx.clip(positions, 0, self.wpe.weight.shape[0] - 1))
        mask = module.create_attention_mask(hidden, cache[0])
        for layer, of_layer in zip(self.h, cache, strict=True):
            hidden = layer(hidden, mask, cache=of_layer)
        return self.ln_f(hidden)

    return wrap(module.GPTBigCodeModel, "__call__", model)


def _limite(hits: Hits) -> Patch:
    """The mask is the cache's; a window is of the query's token and as many before as it says."""
    module = _language("limite")
    call = threading.local()

    def model(
        right: Right, self: Any, inputs: mx.array, cache: Any = None, positions: Any = None
    ) -> Any:
        if positions is None and cache is not None and _of_rows(cache[0].offset):
            hits.hit()
            positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        return right(self, inputs, cache=cache, positions=positions)

    def attention(right: Right, self: Any, x: mx.array, *args: Any) -> Any:
        cache, window = args[-1], self.window
        if cache is not None and _of_rows(cache.offset):
            window = None if window is None else window + 1
            call.mask = cache.make_mask(x.shape[1], window_size=window)
        result = right(self, x, *args)
        call.mask = None  # otherwise memory outside of the caches grows with their length
        return result

    def mask(right: Right, columns: int, offset: Any, *args: Any) -> Any:
        return call.mask if _of_rows(offset) else right(columns, offset, *args)

    return together(
        wrap(module.LimiteModel, "__call__", model),
        wrap(module.Attention, "__call__", attention),
        wrap(module, "_causal_window_mask", mask),
    )
