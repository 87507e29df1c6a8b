"""The caches that mlx-vlm makes for rows, of each kind and quantized, and joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.turboquant import BatchTurboQuantKVCache

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.rows import differing, refused

ar: Any = compat.part("generate.ar")
caches: Any = compat.part("models.cache")

_FILE = "mlx_vlm/generate/ar.py"


def row_cache_properties() -> list[Property]:
    """The properties of the functions that make and join caches."""
    made = ("_make_cache*", "_extend_cache", "_is_batch_cache_entry")
    return [
        Property("rows: caches", _FILE, made, _made),
        Property("rows: quantized caches", _FILE, made, _quantized),
        Property("rows: caches joined", _FILE, made, _joined),
    ]


_PADDING = [2, 0, 1]


def _model(*made: Any) -> Any:
    return SimpleNamespace(make_cache=lambda: list(made))


def _kinds(found: Sequence[Any]) -> list[str]:
    return [type(one).__name__ for one in found]


def _made() -> Iterator[str]:
    """A batch's cache of each kind, with the rows' padding and the settings of the plain one."""
    plain = (
        caches.KVCache(),
        caches.ChunkedKVCache(8),
        caches.SimpleKVCache(),
        caches.ArraysCache(2),
        caches.RotatingKVCache(max_size=6),
        caches.PoolingCache(2),
        caches.CacheList(caches.KVCache(), caches.RotatingKVCache(max_size=5)),
        (caches.KVCache(), caches.ArraysCache(1)),
    )
    found = ar._make_cache(_model(*plain), _PADDING)
    want = ["BatchKVCache"] * 3 + ["ArraysCache", "BatchRotatingKVCache", "BatchPoolingCache"]
    if _kinds(found) != [*want, "CacheList", "CacheList"]:
        yield f"caches of batches are {_kinds(found)}"
        return
    inner = [_kinds(one.caches) for one in found[6:]]
    if inner != [["BatchKVCache", "BatchRotatingKVCache"], ["BatchKVCache", "ArraysCache"]]:
        yield f"caches within lists are {inner}"
    leaves = [*found[:6], *found[6].caches, *found[7].caches]
    for one in leaves:
        padding = getattr(one, "left_padding", None)
        if padding is None or np.array(padding).tolist() != _PADDING:
            yield f"{type(one).__name__} has the padding {padding}"
    if (found[4].max_size, found[6].caches[1].max_size, found[5].ratio) != (6, 5, 2):
        yield "a cache's size or ratio is another"
    layers = SimpleNamespace(layers=[None] * 3)
    if _kinds(ar._make_cache(layers, _PADDING)) != ["BatchKVCache"] * 3:
        yield "a model that makes no caches has others"
    for wrong in (caches.RotatingKVCache(max_size=6, keep=2), object()):
        yield from refused(partial(ar._make_cache, _model(wrong), _PADDING))
    own = SimpleNamespace(to_batch=lambda padding: ("own", padding))
    if ar._make_cache(_model(own), _PADDING) != [("own", _PADDING)]:
        yield "a cache that makes its own batch does not"


def _quantized() -> Iterator[str]:
    """Quantized by bits, scheme and start; the last layer is not quantized."""
    turbo, uniform, plain = "BatchTurboQuantKVCache", "BatchQuantizedKVCache", "BatchKVCache"
    cases: list[tuple[dict[str, Any], str, tuple[float, float] | None]] = [
        ({"kv_bits": 8}, uniform, None),
        ({"kv_bits": 4, "kv_group_size": 32}, uniform, None),
        ({"kv_bits": 3.5}, turbo, (3, 4)),
        ({"kv_bits": 4, "kv_quant_scheme": "turboquant"}, turbo, (4, 4)),
        ({"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_key_bits": 3}, turbo, (3, 4)),
        ({"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_value_bits": 2}, turbo, (4, 2)),
        ({"kv_bits": 3.5, "quantized_kv_start": 9, "prefill_length": 8}, plain, None),
        ({"kv_bits": 3.5, "quantized_kv_start": 9, "prefill_length": 9}, turbo, (3, 4)),
        ({"kv_bits": 8, "quantized_kv_start": 9, "prefill_length": 8}, uniform, None),
    ]
    models = (
        _model(
            caches.KVCache(), caches.ChunkedKVCache(8), caches.SimpleKVCache(), caches.KVCache()
        ),
        SimpleNamespace(layers=[None] * 4),
    )
    last = caches.should_quantize_kv_layer(3, 4)
    for options, kind, bits in cases:
        for model in models:
            found = ar._make_cache(model, _PADDING, **options)
            want = [kind] * 3 + [kind if last else plain]
            if _kinds(found) != want:
                yield f"with {options} the caches are {_kinds(found)}"
                continue
            first = found[0]
            if kind == uniform and (first.bits, first.group_size) != (
                options["kv_bits"],
                options.get("kv_group_size", 64),
            ):
                yield f"with {options} there are {first.bits} bits in groups of {first.group_size}"
            if (
                isinstance(first, BatchTurboQuantKVCache)
                and (first.key_bits, first.value_bits) != bits
            ):
                yield f"with {options} there are {first.key_bits} and {first.value_bits} bits"
            if np.array(first.left_padding).tolist() != _PADDING:
                yield f"with {options} the padding is {first.left_padding}"
    own = SimpleNamespace(to_batch=lambda padding: padding)
    mixed = {"kv_bits": 8, "kv_key_scheme": "uniform", "kv_value_scheme": "turboquant"}
    for model, options in ((_model(own, own), {"kv_bits": 8}), (models[0], mixed)):
        try:
            ar._make_cache(model, _PADDING, **options)
        except NotImplementedError:
            continue
        yield f"{options}: what is not supported is not refused"


def _fed(cache: Any, rows: int, start: int) -> Any:
    keys = mx.arange(rows * 2 * 3 * 4).reshape(rows, 2, 3, 4).astype(mx.float32) + start
    cache.update_and_fetch(keys, -keys)
    return cache


def _joined() -> Iterator[str]:
    """Rows of two batches, of a batch and a stream, and of nothing."""
    for one, other in (
        (_fed(caches.BatchKVCache([0, 0]), 2, 0), _fed(caches.BatchKVCache([0]), 1, 100)),
        (_fed(caches.KVCache(), 1, 0), _fed(caches.BatchKVCache([0, 0]), 2, 100)),
        (_fed(caches.BatchKVCache([0, 0]), 2, 0), _fed(caches.KVCache(), 1, 100)),
    ):
        parts = [one.state, other.state]
        (joined,) = ar._extend_cache([one], [other])
        for at in range(2):
            want = np.concatenate([np.array(part[at]) for part in parts])
            yield from differing(joined.state[at], want, "caches joined")
    some = [caches.BatchKVCache([0])]
    if ar._extend_cache([], some) is not some or ar._extend_cache(some, None) is not some:
        yield "a batch that joins none is another"
    lists = (caches.CacheList(*some), caches.CacheList(caches.KVCache()))
    if [ar._is_batch_cache_entry(one) for one in lists] != [True, False]:
        yield "a list of plain caches is one of a batch"
    yield from refused(lambda: ar._extend_cache([object()], [object()]))
