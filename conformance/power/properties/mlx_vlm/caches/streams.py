"""mlx-vlm's single-stream caches beside a plain list of columns, and what is kept of them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import FILE, caches, differs, drawn, refuses

HEADS, KEY, VALUE, GROUP = 2, 32, 64, 32
STEP = 4
BITS = 8
KINDS: dict[str, Callable[[], Any]] = {
    "KVCache": caches.KVCache,
    "QuantizedKVCache": lambda: caches.QuantizedKVCache(group_size=GROUP, bits=BITS),
    "ChunkedKVCache": lambda: caches.ChunkedKVCache(5),
    "ConcatenateKVCache": caches.ConcatenateKVCache,
    "SimpleKVCache": caches.SimpleKVCache,
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
    made = type(cache).from_state(cache.state, cache.meta_state)
    kept = KINDS[name]()
    kept.prefix_cache_restore(cache.prefix_cache_snapshot())
    for one in (made, kept):
        twin = copy.copy(stream)
        twin.cache = one
        if name == "ChunkedKVCache" and one.chunk_size != 5:
            yield f"{said}: chunks of {one.chunk_size} are restored"
        yield from twin.differing(one.state, f"{said}, restored")
        got = twin.feed(2)
        yield from twin.differing(got, f"{said}, restored and fed")
        yield from _says(name, twin, f"{said}, restored and fed")


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


def cache_kept_properties() -> list[Property]:
    """The properties of restoring, joining and splitting caches."""
    names = (*STREAMS, "_dequantize_uniform", "_BaseCache.*", "*.prefix_cache_merge*")
    return [
        Property("caches: streams as they are kept", FILE, names, _kept),
        Property("caches: streams quantized and taken apart", FILE, names, _apart),
        Property("caches: chunks", FILE, ("ChunkedKVCache.*",), _chunks),
    ]


def _kept() -> Iterator[str]:
    """Empty caches are restored empty; only rows of one kind are joined."""
    for name, make in KINDS.items():
        back = make()
        back.prefix_cache_restore(make().prefix_cache_snapshot())
        if not back.empty() or any(one is not None for one in leaves(back)):
            yield f"an empty {name} is restored with columns"
        if caches._BaseCache.prefix_cache_merge(back, [back], [0]) is not None:
            yield "caches that cannot be put together are"
    made = [Stream(caches.QuantizedKVCache(GROUP, BITS)) for _ in range(2)]
    for stream, width in zip(made, (3, 1), strict=True):
        stream.feed(width)
    rows = [made[0].cache, caches.KVCache(), made[1].cache]
    batch = rows[0].prefix_cache_merge(rows, [3.0, 0, 1])
    said = type(batch).__name__, batch.group_size, batch.bits, batch._idx
    if said != ("BatchQuantizedKVCache", GROUP, BITS, 3):
        yield f"rows put together are {said}"
    if (batch.offset.tolist(), batch.left_padding.tolist()) != ([3, 0, 1], [0, 3, 2]):
        yield f"rows put together have {batch.offset}, {batch.left_padding}"
    for row, stream in ((0, made[0]), (2, made[1])):
        alone = batch.extract(row)
        yield from stream.differing((alone.keys, alone.values), f"row {row} put together")
    yield from _not_together(made[0].cache)
    once = caches.SimpleKVCache()
    given = [mx.ones((1, HEADS, 3, size)) for size in (KEY, VALUE)]
    once.update(*given)
    if once.cache_length != 3 or any(a is not b for a, b in zip(once.fetch(), given, strict=True)):
        yield f"what is stored once has {once.cache_length} columns"


def _not_together(own: Any) -> Iterator[str]:
    fed = Stream(caches.KVCache())
    fed.feed(1)
    turned = caches.KVCache()
    turned.values = mx.zeros(1)
    other = [
        *([own], [2]), *([own, own], [3]), *([], []), *([own, fed.cache], [3, 1]),
        *([own, turned], [3, 0]), *([own, caches.RotatingKVCache(4)], [3, 0]),
        *([own, caches.QuantizedKVCache(64, BITS)], [3, 0]),
        *([own, caches.QuantizedKVCache(GROUP, 4)], [3, 0]),
    ]  # fmt: skip
    for rows, lengths in zip(other[::2], other[1::2], strict=True):
        if own.prefix_cache_merge(rows, lengths) is not None:
            yield f"{rows} of {lengths} tokens are put together"
    empty = own.prefix_cache_merge([caches.QuantizedKVCache(GROUP, BITS)] * 2, [0, 0])
    if not empty.empty() or empty.batch_size != 2:
        yield "empty rows are not put together"
    for cls, rows in (
        (caches.KVCache, [caches.KVCache(), caches.KVCache()]),
        (caches.RotatingKVCache, [caches.RotatingKVCache(4)] * 2),
        (caches.ChunkedKVCache, [caches.ChunkedKVCache(4)] * 2),
        (caches.ArraysCache, [caches.ArraysCache(1)] * 2),
    ):
        lone = object() if cls is not caches.ChunkedKVCache else caches.KVCache()
        merged = rows[0].prefix_cache_merge(rows, [0, 0])
        if type(merged) not in (
            caches.ArraysCache,
            caches.BatchKVCache,
            caches.BatchRotatingKVCache,
        ):
            yield f"rows of {cls.__name__} are put together as {merged}"
        if merged.left_padding.shape[0] != 2:
            yield f"two rows are put together as {merged.left_padding.shape[0]}"
        if rows[0].prefix_cache_merge([rows[0], lone], [0, 0]) is not None:
            yield f"{cls.__name__} is put together with others"


def _apart() -> Iterator[str]:
    """Rows split from plain keys and values, from packed ones, and after dequantizing."""
    empty = caches.KVCache()
    for row in (1, -2):
        yield from refuses(IndexError, empty.extract, row)
    for row in (0, -1):
        if not empty.extract(row).empty():
            yield "a row of nothing has columns"
    stream = Stream(caches.KVCache(), 3)
    stream.feed(5)
    for row in (3, -4, 7):
        yield from refuses(IndexError, stream.cache.extract, row)
    for row in range(-3, 3):
        alone, part = stream.cache.extract(row), copy.copy(stream)
        part.columns = [one[[row]] for one in stream.columns]
        yield from part.differing((alone.keys, alone.values), f"row {row}")
        if (alone.offset, type(alone)) != (5, caches.KVCache):
            yield f"row {row} has {alone.offset} columns"
    for options, bits in (({"group_size": GROUP, "bits": 8}, 8), ({"group_size": GROUP}, 4)):
        packed = stream.cache.to_quantized(**options)
        if (packed.offset, packed.bits, packed.group_size) != (5, bits, GROUP):
            yield f"packed columns are {packed.meta_state}"
        for held, array in zip(packed.state, stream.cache.state, strict=True):
            wanted = mx.quantize(array, group_size=GROUP, bits=bits)
            yield from differs(mx.array(plain(held, bits)), plain(wanted, bits), "packed columns")
    bare = empty.to_quantized()
    if not bare.empty() or (bare.offset, bare.bits, bare.group_size) != (0, 4, 64):
        yield f"nothing is packed as {bare.meta_state}"
    default = caches.QuantizedKVCache()
    if (default.bits, default.group_size, default.dequantize_for_apc()) != (8, 64, (None, None)):
        yield f"by default columns are packed as {default.meta_state}"
    packed = Stream(caches.QuantizedKVCache(GROUP, BITS))
    packed.feed(5)
    yield from packed.differing(packed.cache.dequantize_for_apc(), "packed columns as read")
    packed.cache.trim(packed.cut(4))
    yield from packed.differing(packed.cache.dequantize_for_apc(), "one packed column as read")
    packed.cache.trim(5)
    if packed.cache.dequantize_for_apc() != (None, None):
        yield "no columns are read as some"


def _chunks() -> Iterator[str]:
    """The last columns of a chunk stay, earlier ones are dropped, and positions continue."""
    caches.ChunkedKVCache(3).maybe_trim_front()
    for widths in ([3, 1, 4], [5, 5], [6, 1, 1, 9], [2, 3, 1]):
        cache = caches.ChunkedKVCache(5)
        cache.step = STEP
        stream, fed = Stream(cache), 0
        for width in widths:
            cache.maybe_trim_front()
            gone = max(0, stream.length - 5)
            stream.columns = [one[:, :, gone:] for one in stream.columns]
            yield from stream.differing(stream.feed(width), f"chunks of {widths}")
            fed += width
            if (cache.offset, cache.start_position) != (fed, fed - stream.length):
                yield f"chunks of {widths} begin at {cache.start_position} of {cache.offset}"
            back = caches.ChunkedKVCache(1)
            back.prefix_cache_restore(cache.prefix_cache_snapshot())
            twin = copy.copy(stream)
            twin.cache = back
            yield from twin.differing(twin.feed(1), f"chunks of {widths}, restored")
        if cache.trim(2) != 2 or cache.offset != fed - 2 or cache.trim(99) != stream.length - 2:
            yield f"chunks of {widths} are cut by others"


_MOST, _STEP = 6, 4
_PIECES = (
    [1] * 14,
    [5, 1, 1, 3, 1],
    [3, 9, 7, 1],
    [12, 1, 1, 5],
    [2, 1, 6, 10],
    [1, 1, 4, 1, 1, 2],
)


def cache_window_properties() -> list[Property]:
    """The property of ``BufferedRotatingKVCache.from_cache``."""
    names = ("RotatingKVCache*", "BufferedRotatingKVCache*")
    return [Property("caches: windows that become buffered", FILE, names, _become)]


def _columns(first: int, width: int) -> tuple[mx.array, mx.array]:
    """Keys and values that encode their position, of different sizes."""
    at = np.arange(first, first + width, dtype=np.float32)[None, None, :, None]
    return mx.array(np.tile(at, (1, 2, 1, 4))), mx.array(np.tile(at + 0.5, (1, 2, 1, 2)))


def _positions(fetched: Sequence[Any]) -> list[int] | str:
    """The positions of the columns of keys and values, or a text if they differ."""
    keys, values = (np.array(one) for one in fetched)
    at = keys[0, 0, :, 0]
    if keys.shape != (1, 2, len(at), 4) or values.shape != (1, 2, len(at), 2):
        return f"columns are of {keys.shape} and {values.shape}"
    if (keys != at[:, None]).any() or (values != at[:, None] + 0.5).any():
        return "values are not those of their keys"
    return [int(one) for one in at]


def _become() -> Iterator[str]:
    """A converted window has the last contents in order, and continues from them.

    What a window does once it is buffered is in ``power/caches``.
    """
    make = caches.BufferedRotatingKVCache.from_cache
    if (made := make(caches.RotatingKVCache(5, 2))).meta_state != ("2", "5", "0", "0", "0", "64"):
        yield f"of nothing a window becomes {made.meta_state}"
    for pieces, spare in itertools.product(_PIECES, (0, 3)):
        cache = caches.RotatingKVCache(_MOST)
        cache.step = _STEP
        for number, width in enumerate(pieces):
            done = sum(pieces[:number])
            cache.update_and_fetch(*_columns(done, width))
            cls: Any = type("Stepped", (caches.BufferedRotatingKVCache,), {"step": _STEP})
            made = cls.from_cache(cache, buffer_size=spare)
            done += width
            held = list(range(max(0, done - _MOST), done))
            got = made.meta_state, _positions(made.state)
            meta = (0, _MOST, done, len(held), held[0], spare)
            if got != (tuple(map(str, meta)), held):
                yield f"a window of {done} tokens becomes {got}"
                return
            if made.keys.shape[2] != -(-(_MOST + spare) // _STEP) * _STEP:
                yield f"a window becomes one with room for {made.keys.shape[2]}"
            for more in (1, 3):
                if len(held) + more > _MOST + max(spare, more):
                    held = [at for at in held if at > done - _MOST]
                held += range(done, done + more)
                now = _positions(made.update_and_fetch(*_columns(done, more)))
                done += more
                if now != held:
                    yield f"a window that became buffered, fed {more}, holds {now}, not {held}"
    half = caches.RotatingKVCache(_MOST)
    half.update_and_fetch(*(one.astype(mx.bfloat16) for one in _columns(0, 3)))
    made = make(half)
    if {made.keys.dtype, made.values.dtype} != {mx.bfloat16} or made.keys.shape[2] != 256:
        yield f"a window becomes one of {made.keys.dtype}"
