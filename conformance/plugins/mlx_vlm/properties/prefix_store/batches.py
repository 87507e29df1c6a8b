"""Batches that mlx-vlm begins with what is kept of some of their rows, quantized or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store import samples
from conformance.plugins.mlx_vlm.properties.prefix_store.memory import plain_caches, pool_of

apc: Any = compat.part("apc")
caches: Any = compat.part("models.cache")
turboquant: Any = compat.part("turboquant")

_FILE = "mlx_vlm/apc.py"
_LAYERS, _SIZE, _BLOCK = 3, 32, 2
# Tokens of the rows that are kept; of new rows none.
_LENGTHS = [0, 4, 3, 0, 6]
_UNIFORM = {"bits": 8, "group_size": 32}
_TURBO = {"bits": 3.5, "group_size": 32}
_MIXED = {**_UNIFORM, "key_scheme": "uniform", "value_scheme": "turboquant"}


def store_batch_properties() -> list[Property]:
    """Those of the functions that put kept rows into batches."""
    names = ("make_warm_batch_*", "_fill_batch_*", "_align_*", "_empty_quant_*", "_reject_*")
    return [
        Property("store: batches of blocks", _FILE, names, _of_blocks),
        Property("store: batches of snapshots", _FILE, names, _of_snapshots),
        Property("store: batches that are refused", _FILE, names, _refused),
        Property("store: blocks of one token", _FILE, ("commit_*", "harvest_*"), _single),
    ]


def _layer(row: int, layer: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Keys and values of one row: ``[1, heads, tokens, size]``."""
    keys = samples.drawn(10 * row + layer, 1, samples.HEADS, _LENGTHS[row], _SIZE).astype(dtype)
    return keys, -keys


def _picks(dtype: mx.Dtype) -> list[Any]:
    """Nothing of new rows; of others blocks, or a stream with room behind its tokens."""
    found: list[Any] = []
    for row, length in enumerate(_LENGTHS):
        layers = [_layer(row, n, dtype) for n in range(_LAYERS)]
        if not length:
            found.append(None)
        elif length % _BLOCK:
            streams = [samples.fed(caches.KVCache(), *both) for both in layers]
            found.append({"warm_cache": streams, "prefix_len": length, "matched_blocks": []})
        else:
            spans = [slice(n, n + _BLOCK) for n in range(0, length, _BLOCK)]
            blocks = [
                SimpleNamespace(
                    keys=[keys[:, :, span] for keys, _ in layers],
                    values=[values[:, :, span] for _, values in layers],
                )
                for span in spans
            ]
            found.append({"matched_blocks": blocks, "prefix_len": length})
    return found


def _padded(layer: int, dtype: mx.Dtype) -> list[mx.array]:
    """Keys and values of all rows, with zeros before them: ``[rows, heads, tokens, size]``."""
    most = max(_LENGTHS)
    rows = [_layer(row, layer, dtype) for row in range(len(_LENGTHS))]
    return [
        mx.concatenate(
            [mx.pad(row[n], [(0, 0), (0, 0), (most - row[n].shape[2], 0), (0, 0)]) for row in rows]
        )
        for n in range(2)
    ]


def _batches() -> list[tuple[Any, Callable[[list[int]], Any]]]:
    """Settings of quantization, and what makes the caches of the layers that are quantized."""
    return [
        (None, caches.BatchKVCache),
        (
            _UNIFORM,
            lambda padding: caches.BatchQuantizedKVCache(padding, group_size=32, bits=8),
        ),
        (_TURBO, lambda padding: turboquant.BatchTurboQuantKVCache(padding, bits=3.5)),
    ]


def _unlike(what: str, found: Any, right: Any) -> Iterator[str]:
    if type(found) is not type(right):
        yield f"{what} is a {type(found).__name__}, not a {type(right).__name__}"
        return
    for name in ("left_padding", "offset", "_idx"):
        one, other = getattr(found, name), getattr(right, name)
        if samples.nested(one) != samples.nested(other):
            yield f"{what} has the {name} {one}, not {other}"
    got, want = (samples.nested(_used(cache)) for cache in (found, right))
    if got != want:
        yield f"{what} holds other keys or values"


def _used(cache: Any) -> Any:
    """What is in the columns that are used: plain arrays are cut, packed ones dequantized."""
    if cache.keys is None:
        return None
    if hasattr(cache, "dequantize_for_apc"):
        return cache.dequantize_for_apc()
    return cache.keys[..., : cache._idx, :], cache.values[..., : cache._idx, :]


def _of_blocks() -> Iterator[str]:
    """Each layer a cache that was fed with all rows; the last one is never quantized."""
    padding = [max(_LENGTHS) - n for n in _LENGTHS]
    for dtype in (mx.float32, mx.bfloat16):
        for config, make in _batches():
            made, most = apc.make_warm_batch_kv_cache_multi(
                _picks(dtype), _LAYERS, kv_quant_config=config
            )
            if most != max(_LENGTHS) or len(made) != _LAYERS:
                yield f"a batch of blocks has {len(made)} layers and {most} tokens"
            for layer, cache in enumerate(made):
                kind = make if layer < _LAYERS - 1 else caches.BatchKVCache
                right = samples.fed(kind(padding), *_padded(layer, dtype))
                yield from _unlike(f"with {config} layer {layer} of blocks", cache, right)
    (one,), _ = apc.make_warm_batch_kv_cache_multi(_picks(mx.float32), 1)
    right = samples.fed(caches.BatchKVCache(padding), *_padded(0, mx.float32))
    yield from _unlike("a batch of one layer", one, right)
    for none in ([], [None, None]):
        if (got := apc.make_warm_batch_kv_cache_multi(none, _LAYERS)) != ([], 0):
            yield f"a batch of new rows begins with {got}"


def _of_snapshots() -> Iterator[str]:
    """Plain layers are quantized as those of new rows are; states, and the last one, are not."""
    padding = [max(_LENGTHS) - n for n in _LENGTHS]
    for config, make in _batches():
        rows = []
        for row, length in enumerate(_LENGTHS):
            fed = [caches.KVCache() for _ in range(2)]
            if length:
                fed = [samples.fed(c, *_layer(row, n, mx.float32)) for n, c in enumerate(fed)]
            state = caches.ArraysCache(1)
            state[0] = samples.drawn(row, 1, 3)
            rows.append([fed[0], state, caches.KVCache(), fed[1]])
        made, most = apc.make_warm_batch_exact_cache_multi(rows, _LENGTHS, kv_quant_config=config)
        if most != max(_LENGTHS) or len(made) != 4:
            yield f"a batch of snapshots has {len(made)} layers and {most} tokens"
            continue
        for at, layer, kind in ((0, 0, make), (3, 1, caches.BatchKVCache)):
            right = samples.fed(kind(padding), *_padded(layer, mx.float32))
            yield from _unlike(f"with {config} layer {at} of snapshots", made[at], right)
        yield from _unlike(f"with {config} an empty layer", made[2], make([0] * len(_LENGTHS)))
        if samples.nested(made[1][0]) != samples.nested(
            mx.concatenate([row[1][0] for row in rows])
        ):
            yield f"with {config} states of snapshots are {made[1][0]}"


def _refused() -> Iterator[str]:
    """Keys quantized in another way than values."""
    cold = [[caches.KVCache() for _ in range(3)]]
    warm = [[samples.plain() for _ in range(3)]]
    asks: tuple[Callable[[], Any], ...] = (
        lambda: apc.make_warm_batch_kv_cache_multi(_picks(mx.float32), 3, kv_quant_config=_MIXED),
        lambda: apc.make_warm_batch_exact_cache_multi(cold, [0], kv_quant_config=_MIXED),
        lambda: apc.make_warm_batch_exact_cache_multi(warm, [5], kv_quant_config=_MIXED),
    )
    for ask in asks:
        try:
            ask()
        except NotImplementedError:
            continue
        yield "a batch of keys and values in two ways is made"


def _single() -> Iterator[str]:
    """All are kept where none is left out, whichever way they are kept."""
    for keep in (apc.commit_prefix_blocks, apc.harvest_blocks_from_batch_cache):
        manager = pool_of(block_size=1)
        made = keep(manager, plain_caches(3), [7, 8, 9])
        if len(made) != 3 or manager.lookup_prefix([7, 8, 9])[1] != 3:
            yield f"of three tokens {len(made)} blocks are kept"
