"""Attention: masks that do not match the keys, layers without own keys, positions of rows."""

from __future__ import annotations

import importlib
import threading
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache as caches

from conformance.backend.block_sparse import blocks_of_positions
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_lm.loading import found


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
    "phi3small-block-sparse-mask-in-half",
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


def _of_rows(offset: Any) -> bool:
    """Whether it is one number for each row of a batch."""
    return isinstance(offset, mx.array) and offset.size > 1


@mend("dynamic-ntk-vector-offset", "reference-dynamic-ntk-vector-offset")
def dynamic_ntk_has_a_base_for_each_row(hits: Hits) -> Patch:
    """The base of dynamic NTK follows from each row's own length, without the padding behind it.

    Of a number, as in a single stream: of an array it is rounded to float32, also of one row.
    """
    rope_utils = importlib.import_module("mlx_lm.models.rope_utils")
    scope = threading.local()  # where the rows of a padded prefill end

    def prepared(cache: Any, *, lengths: Any = None, **_: Any) -> None:
        scope.ends = None if lengths is None else (cache.offset + mx.array(lengths)).tolist()

    def finalized(_: Any) -> None:
        scope.ends = None

    def call(right: Right, self: Any, x: mx.array, offset: Any = 0) -> mx.array:
        if not isinstance(offset, mx.array):
            return right(self, x, offset)  # type: ignore[no-any-return]
        hits.hit()
        starts: list[int] = np.array(offset).reshape(-1).tolist()
        columns = x.shape[2]
        ends = getattr(scope, "ends", None) or [start + columns for start in starts]
        found = []
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            own = max(0, min(columns, end - start))
            tokens, padding = x[row : row + 1, :, :own], x[row : row + 1, :, own:]
            found.append(mx.concatenate([right(self, tokens, start), padding], axis=2))
        return mx.concatenate(found)

    return together(
        before(caches.BatchKVCache, "prepare", prepared),
        before(caches.BatchKVCache, "finalize", finalized),
        wrap(rope_utils.DynamicNTKScalingRoPE, "__call__", call),
    )


@mend("gpt-bigcode-vector-offset", "reference-gpt-bigcode-vector-offset")
def gpt_bigcode_has_positions_for_each_row(hits: Hits) -> Patch:
    """The range of positions begins at each row's own."""
    gpt_bigcode = importlib.import_module("mlx_lm.models.gpt_bigcode")

    def arange(start: Any, stop: Any = None) -> Any:
        if not _of_rows(start):
            return np.arange(start) if stop is None else np.arange(start, stop)
        hits.hit()
        columns = (stop - start)[0].item()
        return np.array(start)[:, None] + np.arange(columns)

    return replace(gpt_bigcode, "np", SimpleNamespace(arange=arange))


@mend("afm7-kv-reuse-offset", "afm7-kv-reuse-offset-behind-leaks", "reference-afm7-kv-reuse-offset")
def reused_keys_meet_queries_of_the_row(hits: Hits) -> Patch:
    """Queries of the layers that reuse keys are rotated by each row's own position."""
    afm7 = importlib.import_module("mlx_lm.models.afm7")
    scope = threading.local()

    def model(right: Right, self: Any, inputs: mx.array, cache: Any = None) -> mx.array:
        # Before the pass, because the caches increase their offsets.
        scope.offset = None if cache is None else cache[-1].offset
        return right(self, inputs, cache)  # type: ignore[no-any-return]

    def attend(right: Right, self: Any, *args: Any) -> mx.array:
        if not _of_rows(scope.offset):
            return right(self, *args)  # type: ignore[no-any-return]
        hits.hit()
        x, keys, values, mask = args
        rows, columns, _ = x.shape
        queries = self.q_proj(x).reshape(rows, columns, self.n_heads, -1).swapaxes(1, 2)
        queries = self.q_norm(self.rope(queries, offset=scope.offset))
        found = afm7.scaled_dot_product_attention(
            queries, keys, values, cache=None, scale=self.scale, mask=mask
        )
        return self.out_proj(found.swapaxes(1, 2).flatten(2))  # type: ignore[no-any-return]

    return together(
        wrap(afm7.AFMModel, "__call__", model),
        wrap(afm7.KVReuseAttention, "__call__", attend),
    )
