"""Caches of each class that mlx-vlm's prefix caching keeps, and what such a cache holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.plugins.mlx_vlm import compat

caches: Any = compat.part("models.cache")
ring: Any = compat.part("models.unlimited_ocr.language")
turboquant: Any = compat.part("turboquant")
minimax: Any = compat.part("models.minimax_m3_vl.language")

# Heads, and elements of keys and of values; those of quantized ones fill whole groups.
HEADS, SIZES, _WIDE = 2, (4, 6), 32
_NUMBERS = (
    *("offset", "step", "keep", "max_size", "_idx", "chunk_size", "start_position"),
    *("cache_length", "ratio", "remainder", "window_size", "prefill_length", "_ring_pos"),
    *("index_offset", "group_size", "bits", "read_only"),
)
_ARRAYS = ("keys", "values", "index_keys", "cache", "pooled", "buf_kv", "buf_gate", "kv_cache")
_OF_ROWS = ("left_padding", "lengths")
# What has room behind its tokens, which nothing reads: how many these are.
_TOKENS: dict[str, Callable[[Any], int]] = {
    "KVCache": lambda cache: cache.offset,
    "QuantizedKVCache": lambda cache: cache.offset,
    "RingSlidingKVCache": lambda cache: 0 if cache.keys is None else cache.state[0].shape[2],
    "MiniMaxM3KVCache": lambda cache: cache.index_offset,
}


def drawn(seed: int, *shape: int) -> mx.array:
    """An array of random numbers, computed."""
    array = mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
    mx.eval(array)
    return array


def _with(cache: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(cache, name, value)
    return cache


def _both(seed: int, tokens: int) -> dict[str, mx.array]:
    """Keys and values: ``[1, heads, tokens, size]``."""
    names = enumerate(zip(("keys", "values"), SIZES, strict=True))
    return {name: drawn(10 * seed + n, 1, HEADS, tokens, size) for n, (name, size) in names}


def plain(seed: int = 0, tokens: int = 5, room: int = 3) -> Any:
    """A ``KVCache`` of so many tokens, with room for more."""
    return _with(caches.KVCache(), offset=tokens, **_both(seed, tokens + room))


def window(seed: int = 0) -> Any:
    """A ``RotatingKVCache`` that has gone round."""
    return _with(caches.RotatingKVCache(max_size=6, keep=1), offset=9, _idx=4, **_both(seed, 6))


def state(seed: int = 0) -> Any:
    """An ``ArraysCache`` of a row with padding."""
    made = _with(caches.ArraysCache(2), left_padding=mx.array([2]), lengths=mx.array([7]))
    made[0], made[1] = drawn(seed, 1, 3), drawn(seed + 1, 1, 2, 2)
    return made


def _partly_filled() -> Any:
    made = state()
    made.cache.insert(1, None)
    return made


def quantized(seed: int = 0, tokens: int = 5, room: int = 3) -> Any:
    """A ``QuantizedKVCache``, with room for more tokens."""
    parts = [
        mx.quantize(drawn(seed + n, 1, HEADS, tokens + room, _WIDE), group_size=32, bits=4)
        for n in range(2)
    ]
    mx.eval(parts)
    made = caches.QuantizedKVCache(group_size=32, bits=4)
    return _with(made, offset=tokens, keys=parts[0], values=parts[1])


def _turbo() -> Any:
    made = turboquant.TurboQuantKVCache(bits=4)
    keys = drawn(12, 1, HEADS, 5, _WIDE)
    made.update_and_fetch(keys, keys + 1)
    return made


def _chunked() -> Any:
    return _with(caches.ChunkedKVCache(4), offset=9, start_position=5, **_both(2, 8))


def simple() -> Any:
    """A ``SimpleKVCache``, of which no rows are taken."""
    return _with(caches.SimpleKVCache(), cache_length=5, **_both(3, 5))


def _pooling() -> Any:
    made = _with(caches.PoolingCache(4), remainder=3, pooled=drawn(4, 1, 2, 5))
    return _with(made, buf_kv=drawn(5, 1, 4, 5), buf_gate=drawn(6, 1, 4, 5))


def _ring(prefill: int | None) -> Any:
    offset = 8 if prefill is None else 11
    made = _with(ring.RingSlidingKVCache(3), offset=offset, prefill_length=prefill)
    return _with(made, _ring_pos=2, **_both(7, 8))


def _indexed() -> Any:
    made = _with(minimax.MiniMaxM3KVCache(), kv_cache=plain(8, 5, 0))
    return _with(made, index_keys=drawn(9, 1, 1, 6, 4), index_offset=5)


def _static() -> Any:
    return _with(caches.StaticPrefixKVCache(8), offset=5, **_both(11, 5))


def fed(cache: Any, keys: mx.array, values: mx.array) -> Any:
    """That cache, after these tokens."""
    cache.update_and_fetch(keys, values)
    return cache


Maker = Callable[[], Any]


def stored() -> dict[str, Maker]:
    """Those of which a file says which class they are, filled; each makes a new one."""
    return {
        "KVCache": plain,
        "RotatingKVCache": window,
        "ChunkedKVCache": _chunked,
        "ArraysCache": state,
        "ArraysCache with an empty slot": _partly_filled,
        "SimpleKVCache": simple,
        "PoolingCache": _pooling,
        "RingSlidingKVCache": partial(_ring, 5),
        "RingSlidingKVCache at its prompt": partial(_ring, None),
        "MiniMaxM3KVCache": _indexed,
        "QuantizedKVCache": quantized,
        "TurboQuantKVCache": _turbo,
        "CacheList": lambda: caches.CacheList(plain(1), caches.CacheList(state(2))),
        "tuple": lambda: (plain(1), window(2)),
    }


def empty() -> dict[str, Maker]:
    """Those without tokens."""
    return {
        "KVCache": caches.KVCache,
        "KVCache cut to nothing": partial(plain, tokens=0),
        "RotatingKVCache": lambda: caches.RotatingKVCache(max_size=5, keep=2),
        "ChunkedKVCache": lambda: caches.ChunkedKVCache(4),
        "ArraysCache": lambda: caches.ArraysCache(2),
        "SimpleKVCache": caches.SimpleKVCache,
        "PoolingCache": lambda: caches.PoolingCache(4),
        "RingSlidingKVCache": lambda: ring.RingSlidingKVCache(3),
        "MiniMaxM3KVCache": minimax.MiniMaxM3KVCache,
        "QuantizedKVCache": lambda: caches.QuantizedKVCache(group_size=32, bits=4),
        "StaticPrefixKVCache": lambda: caches.StaticPrefixKVCache(8),
    }


def of_one_class() -> dict[str, Maker]:
    """Filled ones that prefix caching copies: those of files, and others."""
    return {**stored(), "StaticPrefixKVCache": _static}


def content(cache: Any) -> Any:
    """All that a cache holds, arrays as nested lists with dtype and shape."""
    parts = cache if isinstance(cache, tuple) else getattr(cache, "caches", None)
    if parts is not None:
        return [type(cache).__name__, *map(content, parts)]
    name = type(cache).__name__
    found: dict[str, Any] = {"class": name}
    if name == "TurboQuantKVCache":
        return found | nested(cache.prefix_cache_snapshot())
    found |= {n: getattr(cache, n) for n in _NUMBERS if hasattr(cache, n)}
    end = _TOKENS[name](cache) if name in _TOKENS else None
    found |= {n: _values(getattr(cache, n), end) for n in _ARRAYS if hasattr(cache, n)}
    return found | {n: _values(getattr(cache, n), None) for n in _OF_ROWS if hasattr(cache, n)}


def _values(value: Any, end: int | None) -> Any:
    if isinstance(value, mx.array):
        cut = value if end is None else value[..., :end, :]
        return None if end == 0 else (str(cut.dtype), cut.shape, cut.tolist())
    if isinstance(value, list | tuple):
        return [_values(one, end) for one in value]
    if isinstance(value, dict):
        return {key: _values(one, end) for key, one in value.items()}
    return value if value is None or isinstance(value, int | float | str) else content(value)


def nested(value: Any) -> Any:
    """Arrays as nested lists with dtype and shape, in lists."""
    return _values(value, None)
