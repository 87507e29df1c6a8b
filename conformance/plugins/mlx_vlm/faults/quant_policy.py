"""Faults of which caches are quantized, when, and how often."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs
from conformance.plugins.mlx_vlm.faults.patching import fault, part, prompt_class

_PLAIN = ("cache:KVCache", "quantizable")
_GROUPED = ("cache:KVCache", "quantizable:*")


def _uniform() -> Any:
    return part("models.cache").BatchQuantizedKVCache


def _turbo() -> Any:
    return part("turboquant").BatchTurboQuantKVCache


def _last_layer(hits: Hits) -> AbstractContextManager[None]:
    owner, policy = part("generate.ar"), part("models.cache")
    real = owner._make_cache

    def make_cache(*args: Any, **options: Any) -> Any:
        right = real(*args, **options)
        with replaced(policy, "should_quantize_kv_layer", lambda _index, _count: True):
            wrong = real(*args, **options)
        # The same where the last layer keeps no keys of its own, or is quantized anyway.
        if _kinds(wrong) != _kinds(right):
            hits.hit()
        return wrong

    return replaced(owner, "_make_cache", make_cache)


def _kinds(entries: Any) -> list[type]:
    """The classes of caches, and of those within composite ones."""
    return [kind for one in entries for kind in (type(one), *_kinds(getattr(one, "caches", ())))]


@contextlib.contextmanager
def _made(change: Callable[[Any, Any], Any], hits: Hits) -> Iterator[None]:
    """``change(entry, make)`` for each cache of a quantized batch; what ``make`` makes is one."""
    owner = part("generate.ar")
    real = owner._make_cache

    def make_cache(model: Any, left_padding: Any, **options: Any) -> Any:
        entries = real(model, left_padding, **options)
        quantized = {_uniform(), _turbo()} & set(_kinds(entries))
        # None before the start, from which on a library quantizes.
        if not quantized:
            return entries

        def make() -> Any:
            hits.hit()
            bits = options["kv_bits"]
            if _turbo() in quantized:
                return _turbo()(left_padding, bits=bits)
            group = options["kv_group_size"]
            return _uniform()(left_padding, group_size=group, bits=int(bits))

        return [change(entry, make) for entry in entries]

    with replaced(owner, "_make_cache", make_cache):
        yield


def _rotating(hits: Hits) -> AbstractContextManager[None]:
    rotating = part("models.cache").BatchRotatingKVCache
    return _made(lambda one, make: make() if isinstance(one, rotating) else one, hits)


def _composite(hits: Hits) -> AbstractContextManager[None]:
    composite = part("models.cache").CacheList
    return _made(lambda one, make: make() if isinstance(one, composite) else one, hits)


@contextlib.contextmanager
def _plain_rows_merged(hits: Hits) -> Iterator[None]:
    """Prompts are prefilled as they are, and quantized when they come into the batch."""
    real_init, real_generate = prompt_class().__init__, prompt_class().generate
    asked: dict[int, dict[str, Any]] = {}

    def init(self: Any, *args: Any, **options: Any) -> None:
        bits = options.get("kv_bits")
        turbo = part("turboquant").turboquant_enabled
        if bits is not None and not turbo(bits, options["kv_quant_scheme"]):
            asked[id(self)] = {"bits": int(bits), "group_size": options["kv_group_size"]}
            options["kv_bits"] = None
        real_init(self, *args, **options)

    def generate(self: Any, *args: Any, **options: Any) -> Any:
        batch = real_generate(self, *args, **options)
        kind = asked.pop(id(self), None)
        if kind is not None:
            hits.hit()
            batch.prompt_cache = _converted(batch.prompt_cache, kind)
        return batch

    with (
        replaced(prompt_class(), "__init__", init),
        replaced(prompt_class(), "generate", generate),
    ):
        yield


def _converted(entries: Any, kind: dict[str, Any]) -> list[Any]:
    return [
        _quantize(entry, kind)
        if part("models.cache").should_quantize_kv_layer(at, len(entries))
        else entry
        for at, entry in enumerate(entries)
    ]


def _quantize(entry: Any, kind: dict[str, Any]) -> Any:
    caches = part("models.cache")
    rows = caches.KVCache.merge([entry]) if isinstance(entry, caches.KVCache) else entry
    if type(rows) is not caches.BatchKVCache:
        return entry
    keys, values, offset, left_padding = rows.state
    made = _uniform()(left_padding.tolist(), **kind)
    made.update_and_fetch(keys, values)
    made.offset = offset
    return made


def _coarse(keys: Any, values: Any) -> tuple[Any, Any]:
    """As they come back from a uniform cache of 2 bits."""
    parts = (mx.quantize(array, group_size=32, bits=2) for array in (keys, values))
    back_keys, back_values = (mx.dequantize(*one, group_size=32, bits=2) for one in parts)
    return back_keys.astype(keys.dtype), back_values.astype(values.dtype)


def _coarse_turbo(keys: Any, values: Any) -> tuple[Any, Any]:
    """As they come back from a TurboQuant cache of 2 bits: heads of any size that it takes."""
    cache = part("turboquant").TurboQuantKVCache(bits=2)
    cache.update_and_fetch(keys, values)
    back_keys, back_values = cache.dequantize()
    return back_keys.astype(keys.dtype), back_values.astype(values.dtype)


def _twice(
    owner: Any, coarse: Callable[[Any, Any], Any], hits: Hits
) -> AbstractContextManager[None]:
    real = owner.update_and_fetch

    def update_and_fetch(self: Any, keys: Any, values: Any) -> Any:
        again = coarse(keys, values)
        if any(map(differs, again, (keys, values))):
            hits.hit()
        return real(self, *again)

    return replaced(owner, "update_and_fetch", update_and_fetch)


def _uniform_twice(hits: Hits) -> AbstractContextManager[None]:
    return _twice(_uniform(), _coarse, hits)


def _turbo_twice(hits: Hits) -> AbstractContextManager[None]:
    return _twice(_turbo(), _coarse_turbo, hits)


FAULTS = (
    fault(
        "B20.last-layer-quantized",
        "KV quant policy",
        "mlx-vlm #1030",
        "the last layer is quantized too",
        _last_layer,
        kills="quantized",
        where="cache:*",
        needs=_PLAIN,
    ),
    fault(
        "B20.rotating-layers-quantized",
        "KV quant policy",
        "mlx-vlm #1030",
        "layers with a sliding window are quantized, and lose their window",
        _rotating,
        kills="quantized",
        where="cache:*",
        needs=("cache:RotatingKVCache", *_PLAIN),
    ),
    fault(
        "D3.composite-replaced-by-quantized",
        "cache kind",
        "a Swift engine's fork",
        "a composite cache is replaced by a plain quantized one",
        _composite,
        kills="quantized",
        where="crash:*",
        needs=("cache:CacheList", "cache:ArraysCache", "cache:KVCache"),
        crash=True,
    ),
    fault(
        "D4.plain-rows-merged",
        "cache kind",
        "a Swift engine's fork",
        "unquantized rows are merged into a quantized batch",
        _plain_rows_merged,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.quantized-twice",
        "KV quant",
        "mlx-vlm #1030",
        "uniform bits: keys and values come from another quantized cache",
        _uniform_twice,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_GROUPED,
    ),
    fault(
        "B21.turbo-quantized-twice",
        "KV quant",
        "mlx-vlm #1030",
        "TurboQuant: keys and values come from another quantized cache",
        _turbo_twice,
        kills="quantized",
        where="cache:*Quant*KVCache:*",
        needs=_PLAIN,
    ),
)
