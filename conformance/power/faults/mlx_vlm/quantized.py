"""Quantized keys and values: which caches, how often, scales and norms of another row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.plugins.mlx_vlm.library_parts import (
    cache_class,
    part,
    prompt_class,
    turbo_class,
    uniform_class,
)
from conformance.power.faults.mlx_vlm.tools import GROUPED, QUANTIZABLE, mlx_vlm_fault
from conformance.power.faults.shared_faults import OUTPUT, differs

_policy = partial(
    mlx_vlm_fault,
    fault_class="KV quant policy",
    source="mlx-vlm #1030",
    kills=("quantized",),
    where="cache:*",
    needs=QUANTIZABLE,
)
_kind = partial(_policy, fault_class="cache kind", source="a Swift engine's fork")
_twice = partial(_policy, fault_class="KV quant", where="cache:*Quant*KVCache:*")


def _kinds(entries: Any) -> list[type]:
    """The classes of caches, and of those within composite ones."""
    return [kind for one in entries for kind in (type(one), *_kinds(getattr(one, "caches", ())))]


@_policy("B20.last-layer-quantized")
def last_layer_quantized(hits: Hits) -> Patch:
    """The last layer is quantized too."""

    def make_cache(right: Right, *args: Any, **options: Any) -> Any:
        true = right(*args, **options)
        with replace(part("models.cache"), "should_quantize_kv_layer", lambda _index, _count: True):
            wrong = right(*args, **options)
        # The same where the last layer keeps no keys of its own, or is quantized anyway.
        hits.hit_if(_kinds(wrong) != _kinds(true))
        return wrong

    return wrap(part("generate.ar"), "_make_cache", make_cache)


def _quantized_instead(kind: str, hits: Hits) -> Patch:
    """In a quantized batch the caches of this class are plain quantized ones."""

    def make_cache(right: Right, model: Any, left_padding: Any, **options: Any) -> Any:
        entries = right(model, left_padding, **options)
        quantized = {uniform_class(), turbo_class()} & set(_kinds(entries))
        # None before the start, from which on a library quantizes.
        if not quantized:
            return entries

        def make() -> Any:
            hits.hit()
            bits = options["kv_bits"]
            if turbo_class() in quantized:
                return turbo_class()(left_padding, bits=bits)
            group = options["kv_group_size"]
            return uniform_class()(left_padding, group_size=group, bits=int(bits))

        return [make() if isinstance(one, cache_class(kind)) else one for one in entries]

    return wrap(part("generate.ar"), "_make_cache", make_cache)


@_policy("B20.rotating-layers-quantized", needs=("cache:RotatingKVCache", *QUANTIZABLE))
def rotating_layers_quantized(hits: Hits) -> Patch:
    """Layers with a sliding window are quantized, and lose their window."""
    return _quantized_instead("BatchRotatingKVCache", hits)


@_kind(
    "D3.composite-replaced-by-quantized",
    where="crash:*",
    needs=("cache:CacheList", "cache:ArraysCache", "cache:KVCache"),
    crash=True,
)
def composite_replaced_by_quantized(hits: Hits) -> Patch:
    """A composite cache is replaced by a plain quantized one."""
    return _quantized_instead("CacheList", hits)


@_kind("D4.plain-rows-merged", where="cache:*Quant*KVCache:*", needs=GROUPED)
def plain_rows_merged(hits: Hits) -> Patch:
    """Unquantized rows are merged into a quantized batch.

    Prompts are prefilled as they are, and quantized when they come into the batch.
    """
    wanted: dict[int, dict[str, Any]] = {}

    def init(right: Right, self: Any, *args: Any, **options: Any) -> None:
        bits = options.get("kv_bits")
        turbo = part("turboquant").turboquant_enabled
        if bits is not None and not turbo(bits, options["kv_quant_scheme"]):
            wanted[id(self)] = {"bits": int(bits), "group_size": options["kv_group_size"]}
            options["kv_bits"] = None
        right(self, *args, **options)

    def generate(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        batch = right(self, *args, **options)
        kind = wanted.pop(id(self), None)
        if kind is not None:
            hits.hit()
            entries, quantizes = batch.prompt_cache, part("models.cache").should_quantize_kv_layer
            batch.prompt_cache = [
                _quantize(entry, kind) if quantizes(at, len(entries)) else entry
                for at, entry in enumerate(entries)
            ]
        return batch

    return together(
        wrap(prompt_class(), "__init__", init), wrap(prompt_class(), "generate", generate)
    )


def _quantize(entry: Any, kind: dict[str, Any]) -> Any:
    caches = part("models.cache")
    rows = caches.KVCache.merge([entry]) if isinstance(entry, caches.KVCache) else entry
    if type(rows) is not caches.BatchKVCache:
        return entry
    keys, values, offset, left_padding = rows.state
    made = uniform_class()(left_padding.tolist(), **kind)
    made.update_and_fetch(keys, values)
    made.offset = offset
    return made


Coarse = Callable[[mx.array, mx.array], tuple[mx.array, mx.array]]


def _coarse_uniform(keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
    """As they come back from a uniform cache of 2 bits."""
    parts = (mx.quantize(array, group_size=32, bits=2) for array in (keys, values))
    back_keys, back_values = (mx.dequantize(*one, group_size=32, bits=2) for one in parts)
    return back_keys.astype(keys.dtype), back_values.astype(values.dtype)


def _coarse_turbo(keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
    """As they come back from a TurboQuant cache of 2 bits: heads of any size that it takes."""
    cache = part("turboquant").TurboQuantKVCache(bits=2)
    cache.update_and_fetch(keys, values)
    back_keys, back_values = cache.dequantize()
    return back_keys.astype(keys.dtype), back_values.astype(values.dtype)


def _coarse_first(owner: Any, coarse: Coarse, hits: Hits) -> Patch:
    def update_and_fetch(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        again = coarse(keys, values)
        hits.hit_if(any(map(differs, again, (keys, values))))
        return right(self, *again)

    return wrap(owner, "update_and_fetch", update_and_fetch)


@_twice("B21.quantized-twice", needs=GROUPED)
def quantized_twice(hits: Hits) -> Patch:
    """Uniform bits: keys and values come from another quantized cache."""
    return _coarse_first(uniform_class(), _coarse_uniform, hits)


@_twice("B21.turbo-quantized-twice")
def turbo_quantized_twice(hits: Hits) -> Patch:
    """TurboQuant: keys and values come from another quantized cache."""
    return _coarse_first(turbo_class(), _coarse_turbo, hits)


_quantized = partial(
    mlx_vlm_fault,
    fault_class="KV quant",
    source="mlx-vlm #1030",
    kills=("quantized",),
    where="cache:*Quant*KVCache:*",
    needs=GROUPED,
)
# Gives keys or values in which one part's rows are changed by the function.
Part = Callable[[Any, Callable[[mx.array], mx.array]], Any]


def _scales(parts: Any, change: Callable[[mx.array], mx.array]) -> Any:
    """A row's quantized keys or values: packed numbers, scales, which are changed, and biases."""
    packed, scales, biases = parts
    return packed, change(scales), biases


def _norms(state: Any, change: Callable[[mx.array], mx.array]) -> Any:
    """A state of TurboQuant with the norms of its vectors changed, wherever they are in it."""
    if not hasattr(state, "_fields"):
        return state
    values = {name: getattr(state, name) for name in state._fields}
    return state._replace(
        **{
            name: change(value) if name == "norms" else _norms(value, change)
            for name, value in values.items()
        }
    )


def _change_part(cache: Any, part: Part, change: Callable[[mx.array], mx.array]) -> None:
    cache.keys, cache.values = part(cache.keys, change), part(cache.values, change)


def _rolled_on_join(owner: Any, part: Part, hits: Hits) -> Patch:
    """A join gives each row its neighbour's part."""

    def roll(_: None, self: Any, __: Any) -> None:
        if self.keys is not None and self.offset.size > 1:
            hits.hit()
            _change_part(self, part, lambda rows: mx.roll(rows, 1, 0))

    return after(owner, "extend", roll)


def _by_place_on_filter(owner: Any, part: Part, hits: Hits) -> Patch:
    """When rows leave, a part keeps its first rows instead of those that stay."""

    def filter_rows(right: Right, self: Any, rows: Any) -> None:
        if self.keys is not None and rows.tolist() != list(range(rows.size)):
            hits.hit()
            # The order of rows in this part is such that the right choice takes the first ones.
            order = mx.zeros(self.offset.size, mx.int32)
            order[rows] = mx.arange(rows.size)
            _change_part(self, part, lambda one: one[order])
        right(self, rows)

    return wrap(owner, "filter", filter_rows)


@_quantized(
    "B21.masks-of-the-first-four",
    source="a review: nothing is many",
    kills=("traffic_quantized",),
    where=OUTPUT,
)
def masks_of_the_first_four(hits: Hits) -> Patch:
    """Uniform bits: of more than four rows, the others have the masks of the first four again."""

    def attend(right: Right, *args: Any, mask: Any, **options: Any) -> Any:
        if isinstance(mask, mx.array) and mask.shape[0] > 4:
            hits.hit()
            mask = mask[mx.arange(mask.shape[0]) % 4]
        return right(*args, mask=mask, **options)

    return wrap(part("models.base"), "quantized_scaled_dot_product_attention", attend)


@_quantized(
    "B21.biases-past-256-lost", source="a review: nothing is long", kills=("traffic_quantized",)
)
def biases_past_256_lost(hits: Hits) -> Patch:
    """Uniform bits: what a row decodes past 256 columns has no biases of its values."""

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        end = self._idx
        made, (packed, scales, biases) = right(self, keys, values)
        if keys.shape[2] > 1 or end < 256:
            return made, (packed, scales, biases)
        hits.hit()
        biases = mx.where(mx.arange(biases.shape[2])[:, None] < end, biases, 0)
        self.values[2][..., : end + 1, :] = biases
        return made, (packed, scales, biases)

    return wrap(uniform_class(), "update_and_fetch", update)


@_quantized("B21.scales-of-another-row-on-join")
def scales_of_another_row_on_join(hits: Hits) -> Patch:
    """Uniform bits: a join gives each row its neighbour's scales."""
    return _rolled_on_join(uniform_class(), _scales, hits)


@_quantized("B21.scales-of-another-row-on-filter")
def scales_of_another_row_on_filter(hits: Hits) -> Patch:
    """Uniform bits: when rows leave, the first scales stay."""
    return _by_place_on_filter(uniform_class(), _scales, hits)


@_quantized("B21.tuple-out-of-step")
def tuple_out_of_step(hits: Hits) -> Patch:
    """Uniform bits: padding is cut off all parts but the scales of values."""

    def filter_rows(right: Right, self: Any, rows: Any) -> None:
        columns = self._idx
        right(self, rows)
        cut = columns - self._idx
        if cut and self.keys is not None:
            hits.hit()
            self.values = _scales(self.values, lambda scales: mx.roll(scales, cut, -2))

    return wrap(uniform_class(), "filter", filter_rows)


@_quantized("B21.turbo-norms-of-another-row-on-join", needs=QUANTIZABLE)
def turbo_norms_of_another_row_on_join(hits: Hits) -> Patch:
    """TurboQuant: a join gives each row its neighbour's norms."""
    return _rolled_on_join(turbo_class(), _norms, hits)


@_quantized("B21.turbo-norms-of-another-row-on-filter", needs=QUANTIZABLE)
def turbo_norms_of_another_row_on_filter(hits: Hits) -> Patch:
    """TurboQuant: when rows leave, the first norms stay."""
    return _by_place_on_filter(turbo_class(), _norms, hits)


def _first_of_joining(owner: Any, part: Part, hits: Hits) -> Patch:
    """Rows that join together all get the part of the first of them."""

    def extend(right: Right, self: Any, other: Any) -> None:
        if other.keys is not None and other.offset.size > 1:
            hits.hit()
            _change_part(other, part, lambda rows: mx.broadcast_to(rows[:1], rows.shape))
        right(self, other)

    return wrap(owner, "extend", extend)


@_quantized(
    "B21.row-kept-with-scales-of-the-first",
    source="a review: what is kept of quantized batches was never reused",
    kills=("prefix_store/uniform_beside",),
    # Other caches are kept in blocks, which no row is taken out for.
    needs=("cache:RotatingKVCache", *GROUPED),
)
def row_kept_with_scales_of_the_first(hits: Hits) -> Patch:
    """Uniform bits: what is kept of a row has the scales and biases of the first row's values."""

    def extract(right: Right, self: Any, row: int) -> Any:
        kept = right(self, row)
        if kept.values is not None and row:
            hits.hit()
            bits, *parts = kept.values
            columns = slice(self._idx - kept.offset, self._idx)
            first = [one[:1, :, columns] for one in self.values[1:]]
            assert [one.shape for one in first] == [one.shape for one in parts]
            kept.values = (bits, *map(mx.contiguous, first))
        return kept

    return wrap(uniform_class(), "extract", extract)


_of_several = partial(_quantized, kills=("traffic_quantized",))


@_of_several("B21.scales-of-the-first-joining-row")
def scales_of_the_first_joining_row(hits: Hits) -> Patch:
    """Uniform bits: rows that join a batch together all get the scales of the first of them."""
    return _first_of_joining(uniform_class(), _scales, hits)


@_quantized(
    "B21.turbo-norms-of-the-first-joining-row",
    kills=("traffic_quantized/turbo*",),
    needs=QUANTIZABLE,
)
def turbo_norms_of_the_first_joining_row(hits: Hits) -> Patch:
    """TurboQuant: rows that join a batch together all get the norms of the first of them."""
    return _first_of_joining(turbo_class(), _norms, hits)
