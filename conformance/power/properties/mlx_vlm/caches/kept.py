"""Kept contents of mlx-vlm's single-stream caches: snapshots, rows, packed columns, prefixes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import FILE, caches, differs, refuses
from conformance.power.properties.mlx_vlm.caches.streams import (
    BITS,
    GROUP,
    HEADS,
    KEY,
    KINDS,
    STEP,
    STREAMS,
    VALUE,
    Stream,
    leaves,
    plain,
)


def cache_kept_properties() -> list[Property]:
    """The properties of restoring, joining and splitting caches."""
    names = (*STREAMS, "_dequantize_uniform", "_BaseCache.*", "*.prefix_cache_merge*")
    return [
        Property("caches: streams as they are kept", FILE, names, _kept),
        Property("caches: streams quantized and taken apart", FILE, names, _apart),
        Property("caches: chunks", FILE, ("ChunkedKVCache.*",), _chunks),
        Property("caches: prefixes that are read only", FILE, ("StaticPrefix*",), _read_only),
    ]


def _kept() -> Iterator[str]:
    """Empty caches are restored empty; only rows of one kind are joined."""
    for name, make in KINDS.items():
        if name == "StaticPrefixKVCache":
            continue
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


def _read_only() -> Iterator[str]:
    """A shared prefix: its columns come before the readers' columns, which it does not keep."""
    stream = Stream(caches.StaticPrefixKVCache("6", "4"))
    if stream.cache.state != (None, None) or stream.cache.decoder_state != (None, None):
        yield "an empty prefix has columns"
    reader = caches.StaticPrefixKVCache.from_prefix(stream.cache)
    given = [mx.ones((1, HEADS, 1, size)) for size in (KEY, VALUE)]
    if any(a is not b for a, b in zip(reader.update_and_fetch(*given), given, strict=True)):
        yield "behind an empty prefix are other columns"
    for width, room in ((2, 6), (4, 6), (1, 8), (9, 16)):
        stream.feed(width)
        cache = stream.cache
        if cache.keys.shape[2] != room or cache.max_size != room:
            yield f"a prefix of {stream.length} has room for {cache.max_size}"
        if any(a.shape[2] != room for a in cache.decoder_state):
            yield "a decoder sees another prefix"
        reader = caches.StaticPrefixKVCache.from_prefix(cache)
        for _ in range(2):
            twin = copy.copy(stream)
            twin.cache = reader
            yield from twin.differing(twin.feed(1), f"a prefix of {stream.length} that is read")
        wanted = (str(room), "4", str(stream.length))
        if reader.meta_state != (*wanted, "1") or cache.meta_state != (*wanted, "0"):
            yield f"prefixes are {reader.meta_state}, {cache.meta_state}"
        for meta, only in (((*wanted, "1"), True), ((*wanted, "0"), False), (wanted, False)):
            back = caches.StaticPrefixKVCache(1, 1)
            back.state, back.meta_state = cache.decoder_state, meta
            if (back.max_size, back.step, back.read_only) != (room, 4, only):
                yield f"a prefix is restored as {back.meta_state}"
            yield from stream.differing(back.state, "a prefix that is restored")
        yield from _bytes_of(cache, reader)
    if stream.cache.step != 4 or caches.StaticPrefixKVCache(3).step != 256:
        yield "a prefix grows by other steps"
    back = caches.StaticPrefixKVCache(7)
    back.state = stream.cache.state
    if (back.max_size, back.offset) != (16, 16):
        yield f"a prefix of a state has {back.offset} of {back.max_size}"
    back.state = None
    if back.offset != 16 or back.trim("3") != 3 or back.offset != 13:
        yield "a prefix without a state, or cut, is another"


def _bytes_of(cache: Any, reader: Any) -> Iterator[str]:
    profile = reader.memory_profile(0)
    size = cache.nbytes
    if (profile.source_bytes, profile.fixed_bytes, profile.bytes_per_token) != (size, size, 0):
        yield f"a prefix that is read takes {profile}"
    if cache.memory_profile(0).min_capacity != cache.max_size:
        yield f"a prefix takes {cache.memory_profile(0)}"
