"""mlx-vlm's single-stream caches of all columns, each compared with a plain list of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import FILE, caches, differs, drawn

HEADS, KEY, VALUE, GROUP = 2, 32, 64, 32
STEP = 4
BITS = 8
KINDS: dict[str, Callable[[], Any]] = {
    "KVCache": caches.KVCache,
    "QuantizedKVCache": lambda: caches.QuantizedKVCache(group_size=GROUP, bits=BITS),
    "ChunkedKVCache": lambda: caches.ChunkedKVCache(5),
    "ConcatenateKVCache": caches.ConcatenateKVCache,
    "SimpleKVCache": caches.SimpleKVCache,
    "StaticPrefixKVCache": lambda: caches.StaticPrefixKVCache(6, STEP),
}
STREAMS = tuple(f"{name}*" for name in KINDS)


def cache_stream_properties() -> list[Property]:
    """The properties of updates, cuts, masks and capacity."""
    more = (*STREAMS, "_BaseCache.*", "create_attention_mask")
    return [
        Property("caches: streams in any order", FILE, more, _any_order),
        Property("caches: room of streams", FILE, more, _room),
    ]


def plain(held: Any, bits: int = BITS) -> np.ndarray:
    """The values of a cache's arrays; packed ones are dequantized."""
    if isinstance(held, tuple | list):
        if 0 in held[0].shape:
            return np.zeros((*held[0].shape[:-1], held[1].shape[-1] * GROUP), np.float32)
        packed, scales, biases = held
        held = mx.dequantize(packed, scales, biases, group_size=GROUP, bits=bits)
    return np.array(held.astype(mx.float32))


class Stream:
    """A cache of one stream, and the columns that it must hold, ``[row, head, column, size]``."""

    def __init__(self, cache: Any, rows: int = 1, dtype: mx.Dtype = mx.float32) -> None:
        self.cache, self.rows, self.fed, self.dtype = cache, rows, 0, dtype
        self.packed = "Quantized" in type(cache).__name__
        self.columns = [np.zeros((rows, HEADS, 0, size), np.float32) for size in (KEY, VALUE)]

    def feed(self, width: int) -> tuple[Any, Any]:
        """Feed the next columns; returns the cache's result."""
        self.fed += 1
        new = [drawn(self.fed, self.rows, HEADS, width, size) for size in (KEY, VALUE)]
        given = [mx.array(one).astype(self.dtype) for one in new]
        if self.packed:
            new = [plain(mx.quantize(one, group_size=GROUP, bits=BITS)) for one in given]
        self.columns = [np.concatenate(both, 2) for both in zip(self.columns, new, strict=True)]
        got = self.cache.update_and_fetch(*given)
        return got[0], got[1]

    @property
    def length(self) -> int:
        """The number of columns that the cache must hold."""
        return int(self.columns[0].shape[2])

    def cut(self, count: int) -> int:
        """Trim columns; returns the number that the cache must report."""
        count = min(count, self.length)
        self.columns = [one[:, :, : self.length - count] for one in self.columns]
        return count

    def differing(self, held: Any, said: str) -> Iterator[str]:
        """Where a pair of keys and values differs from these columns."""
        for got, wanted, name in zip(held, self.columns, ("keys", "values"), strict=True):
            yield from differs(mx.array(plain(got)), wanted, f"{said}: {name}")


def leaves(cache: Any) -> list[mx.array]:
    """The arrays of keys and values that a cache holds."""
    both = [cache.keys, cache.values]
    return [x for one in both for x in (one if isinstance(one, tuple | list) else [one])]


def _any_order() -> Iterator[str]:
    """Columns are added, cut, saved and restored; all reports are compared after each step."""
    for name, make in KINDS.items():
        draw = np.random.default_rng(3)
        for rows, dtype in ((1, mx.float32), (2, mx.bfloat16), (1, mx.float16)):
            cache = make()
            if name != "SimpleKVCache":
                cache.step = STEP
            if not cache.empty() or (name != "QuantizedKVCache" and cache.nbytes != 0):
                yield f"a new {name} holds {cache.nbytes} bytes"
            stream = Stream(cache, rows, dtype)
            for width in draw.integers(1, 7, 9).tolist():
                got = stream.feed(width)
                said = f"{name} of {stream.length} columns"
                yield from stream.differing(got, said)
                yield from _says(name, stream, said)
                if width % 2 and hasattr(cache, "trim"):
                    yield from _cut(stream, int(draw.integers(0, 4)), said)
                if width % 3 == 0:
                    yield from _reloaded(name, stream, said)


def _says(name: str, stream: Stream, said: str) -> Iterator[str]:
    cache, length = stream.cache, stream.length
    count = cache.cache_length if name == "SimpleKVCache" else cache.offset
    size = length if name == "KVCache" else 0
    if (count, cache.size(), cache.empty()) != (length, size, False):
        yield f"{said} says {count}, {cache.size()}"
    if cache.nbytes != sum(one.nbytes for one in leaves(cache)):
        yield f"{said} takes {cache.nbytes} bytes"
    if {one.dtype for one in leaves(cache)} - {mx.uint32} != {stream.dtype}:
        yield f"{said} holds {leaves(cache)[0].dtype}, fed {stream.dtype}"
    yield from stream.differing(cache.state, f"{said}, as its state")
    if name == "SimpleKVCache":
        yield from stream.differing(cache.fetch(), f"{said}, asked again")
    if not hasattr(cache, "make_mask"):
        return
    for width, window in ((1, None), (3, None), (3, 2), (1, 2)):
        got = cache.make_mask(width, return_array=True, window_size=window)
        if width == 1 and window is None:
            if got is not None:
                yield f"{said}: one query has a mask"
            continue
        last, first = np.arange(length + width), np.arange(length, length + width)[:, None]
        wanted = (last <= first) & (first < last + (window or length + width))
        yield from differs(got, wanted, f"{said}: the mask of {width} in a window of {window}")
    if cache.make_mask(3, return_array=False, window_size=None) != "causal":
        yield f"{said}: a mask that needs no array is one"


def _cut(stream: Stream, count: int, said: str) -> Iterator[str]:
    if not stream.cache.is_trimmable():
        yield f"{said} cannot be cut"
    got, wanted = stream.cache.trim(count), stream.cut(count)
    if got != wanted or stream.cache.offset != stream.length:
        yield f"{said}, cut by {count}: {got} of {wanted}, then {stream.cache.offset}"


def _reloaded(name: str, stream: Stream, said: str) -> Iterator[str]:
    """The same columns after ``from_state``, and after prefix caching."""
    cache = stream.cache
    made = [] if name == "StaticPrefixKVCache" else [type(cache).from_state(*_saved(cache))]
    kept = KINDS[name]()
    kept.prefix_cache_restore(cache.prefix_cache_snapshot())
    for one in (*made, kept):
        twin = copy.copy(stream)
        twin.cache = one
        if name == "ChunkedKVCache" and one.chunk_size != 5:
            yield f"{said}: chunks of {one.chunk_size} are restored"
        yield from twin.differing(one.state, f"{said}, restored")
        got = twin.feed(2)
        yield from twin.differing(got, f"{said}, restored and fed")
        yield from _says(name, twin, f"{said}, restored and fed")


def _saved(cache: Any) -> tuple[Any, Any]:
    return cache.state, cache.meta_state


def _room() -> Iterator[str]:
    """Capacity grows in whole steps, by as many as needed."""
    # Among them as many columns as a key, or a packed one, has elements.
    sizes = (1, 0, 256), (8, 0, 256), (32, 0, 256), (1, 256, 257), (257, 0, 512), (200, 57, 456)
    for name in ("KVCache", "QuantizedKVCache", "ChunkedKVCache"):
        for width, more, wanted in sizes:
            stream = Stream(KINDS[name]())
            stream.feed(width)
            if more:
                stream.feed(more)
            if {one.shape[2] for one in leaves(stream.cache)} != {wanted}:
                yield f"{name} has room for {leaves(stream.cache)[0].shape[2]} of {width} columns"
            yield from stream.differing(stream.cache.state, f"{name} of {width} columns")
    for name in ("KVCache", "QuantizedKVCache"):
        cache = KINDS[name]()
        if tuple(cache.prefix_cache_reserve(5)) != ():
            yield f"an empty {name} makes room"
        for length, asked, room in ((3, 2, 4), (3, 4, 4), (3, 5, 8), (3, 8, 8), (5, 9, 12)):
            stream = Stream(KINDS[name]())
            stream.cache.step = STEP
            stream.feed(length)
            made = stream.cache.prefix_cache_reserve(float(asked))
            if {one.shape[2] for one in leaves(stream.cache)} != {room}:
                yield f"{name} of {length} columns, asked for {asked}, has {stream.cache.keys}"
            both = (stream.cache.keys, stream.cache.values)
            if made and any(a is not b for a, b in zip(made, both, strict=True)):
                yield f"{name} makes other room than it holds"
            kinds = {one.dtype for one in leaves(stream.cache)}
            yield from stream.differing(stream.feed(room - length), f"{name} with room")
            if {one.shape[2] for one in leaves(stream.cache)} != {room}:
                yield f"{name} does not use its room"
            if {one.dtype for one in leaves(stream.cache)} != kinds:
                yield f"{name} with room has other types"
    half = caches.KVCache()
    half.update_and_fetch(*[mx.ones((1, 1, 2, 4), mx.bfloat16)] * 2)
    if {one.dtype for one in half.prefix_cache_reserve(300)} != {mx.bfloat16}:
        yield "room is of another type"
