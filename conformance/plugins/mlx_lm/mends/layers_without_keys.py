"""Layers without keys of their own: they have no cache, or the cache of the layer they share."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.core.mends import mend


@mend("nemotron-nas-empty-cache")
def layers_without_attention_have_no_cache(hits: Hits) -> Patch:
    """Only layers with attention have a cache; a linear map in its place has none."""
    nemotron = importlib.import_module("mlx_lm.models.nemotron-nas")

    def attends(model: Any) -> list[bool]:
        """For each layer that has a cache, whether the layer fills it."""
        mixers = [layer.self_attn for layer in model.layers if layer.self_attn is not None]
        return [isinstance(mixer, nemotron.Attention) for mixer in mixers]

    def make(caches: list[Any], self: Any) -> list[Any]:
        kept = [cache for cache, fills in zip(caches, attends(self), strict=True) if fills]
        hits.hit_if(len(kept) < len(caches))
        return kept

    def call(right: Right, self: Any, inputs: mx.array, cache: Any = None) -> Any:
        fills = attends(self)
        if cache is not None and len(cache) == sum(fills):
            own = iter(cache)
            # A linear map reads no cache, but the mask is made from the first cache.
            cache = [next(own) if fill else cache[0] for fill in fills]
        return right(self, inputs, cache=cache)

    return together(
        after(nemotron.Model, "make_cache", make), wrap(nemotron.NemotronNASModel, "__call__", call)
    )


@mend("gemma3n-sharing-needs-cache", "reference-gemma3n-sharing-needs-cache", single_stream=True)
def gemma3n_shares_without_a_cache(hits: Hits) -> Patch:
    """Layers share keys and values also in a pass that is given no cache."""
    gemma3n = importlib.import_module("mlx_lm.models.gemma3n")

    def call(
        right: Right, self: Any, inputs: Any = None, cache: Any = None, **options: Any
    ) -> mx.array:
        hits.hit_if(cache is None)
        cache = self.make_cache() if cache is None else cache
        return right(self, inputs, cache=cache, **options)  # type: ignore[no-any-return]

    return wrap(gemma3n.LanguageModel, "__call__", call)


@mend("reference-deepseek-v3-quantized-latent", single_stream=True)
def quantized_latents_are_read_as_numbers(hits: Hits) -> Patch:
    """Attention gets latents and rotary keys as numbers, also from a quantized cache."""
    deepseek_v3 = importlib.import_module("mlx_lm.models.deepseek_v3")

    def call(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        if hasattr(cache, "bits"):
            hits.hit()
            cache = _Dequantized(cache)
        return right(self, x, mask, cache)

    return wrap(deepseek_v3.DeepseekV3Attention, "__call__", call)


class _Dequantized:
    """A quantized cache that returns dequantized numbers; attention takes it for a plain one."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.offset = cache.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> list[mx.array]:
        """The contents of the cache, which are near the original values."""
        how = {"group_size": self._cache.group_size, "bits": self._cache.bits}
        return [mx.dequantize(*x, **how) for x in self._cache.update_and_fetch(keys, values)]


@mend("reference-gemma4-text-quantized-shared-kv", single_stream=True)
def shared_keys_say_that_they_are_quantized(hits: Hits) -> Patch:
    """A layer that shares keys knows how its owner's cache has quantized them."""
    gemma4 = importlib.import_module("mlx_lm.models.gemma4_text")

    def call(right: Right, self: Any, x: mx.array, mask: Any, cache: Any, **options: Any) -> Any:
        if isinstance(options.get("shared_kv"), _SharedKeys):
            hits.hit()
            cache = options["shared_kv"]
        found, keys_and_values, offset = right(self, x, mask, cache, **options)
        if hasattr(cache, "bits"):
            keys_and_values = _SharedKeys(keys_and_values, cache)
        return found, keys_and_values, offset

    return wrap(gemma4.Attention, "__call__", call)


class _SharedKeys(tuple[Any, ...]):
    """Keys and values of another layer, used in place of its cache too."""

    bits: int
    group_size: int

    def __new__(cls, keys_and_values: Any, cache: Any) -> _SharedKeys:
        made = super().__new__(cls, keys_and_values)
        made.bits, made.group_size = cache.bits, cache.group_size
        return made

    def update_and_fetch(self, *_: Any) -> Any:
        """Unchanged keys and values: their owner already has the new ones."""
        return tuple(self)
