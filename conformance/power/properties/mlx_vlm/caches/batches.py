"""Properties of mlx-vlm's batch and model caches that no sequence of batch methods reaches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import (
    FILE,
    caches,
    differs,
    drawn,
    refuses,
)
from conformance.power.properties.mlx_vlm.caches.streams import BITS, GROUP, leaves, plain

_WINDOW = 300
_BATCHES: dict[str, Callable[[list[int]], Any]] = {
    "BatchKVCache": caches.BatchKVCache,
    "BatchQuantizedKVCache": lambda padding: caches.BatchQuantizedKVCache(padding, GROUP, BITS),
    "BatchRotatingKVCache": lambda padding: caches.BatchRotatingKVCache(_WINDOW, padding),
}


def cache_batch_properties() -> list[Property]:
    """The properties of ``Batch*KVCache``, ``CacheList``, ``_BaseCache`` and a model's caches."""
    batches = ("Batch*KVCache", "Batch*KVCache.*", "RotatingKVCache.merge", "_dequantize_uniform")
    model = ("make_prompt_cache", "should_quantize_kv_layer", "create_attention_mask")
    joining = (*batches, "BatchPoolingCache.*", "ArraysCache.*")
    base = ("_BaseCache.*", "CacheList.*", "ArraysCache.*", "dynamic_roll")
    return [
        Property("caches: batches", FILE, batches, _batches),
        Property("caches: batches that are prepared", FILE, batches, _prepared),
        Property("caches: rows that join unfed", FILE, joining, _unfed),
        Property("caches: those of a model", FILE, model, _of_model),
        Property("caches: what all have", FILE, base, _all),
        Property("caches: lists of caches", FILE, base, _lists),
    ]


def _fed(cache: Any, width: int, rows: int = 2) -> Any:
    keys, values = (mx.array(drawn(width, rows, 1, width, size)) for size in (GROUP, 2 * GROUP))
    return cache.update_and_fetch(keys, values)


def _batches() -> Iterator[str]:
    """Capacity grows by 256 columns, up to a window; rows and bytes match the contents."""
    for name, make in _BATCHES.items():
        most = _WINDOW if "Rotating" in name else 512
        empty = make([1, 0])
        if (empty.batch_size, empty.is_single_row(), empty.empty()) != (2, False, True):
            yield f"a new {name} has {empty.batch_size} rows"
        if not make([3]).is_single_row():
            yield f"a {name} of one row has several"
        if name != "BatchQuantizedKVCache" and empty.nbytes != 0:
            yield f"a new {name} takes {empty.nbytes} bytes"
        for rows in (2, 1):
            cache = make([0] * rows)
            done = 0
            # A ring does not take several columns at once.
            for width in (1, *([255] if most == 512 else [1] * 255), 1):
                _fed(cache, width, rows)
                done += width
                wanted = {256 if done <= 256 else most}
                if done in (1, 256, 257) and {one.shape[2] for one in leaves(cache)} != wanted:
                    yield f"{name} of {done} columns has room for {leaves(cache)[0].shape[2]}"
            if (cache.batch_size, cache.is_single_row()) != (rows, rows == 1):
                yield f"{name} of {rows} rows has {cache.batch_size}"
        if name != "BatchQuantizedKVCache" and cache.nbytes != sum(x.nbytes for x in leaves(cache)):
            yield f"{name} takes {cache.nbytes} bytes"
    yield from _packed()


def _packed() -> Iterator[str]:
    """Capacity with and without full steps, and dequantized columns."""
    for name in ("BatchKVCache", "BatchQuantizedKVCache"):
        for first, more, room in ((1, 256, 257), (200, 57, 456), (256, 1, 512)):
            cache = _BATCHES[name]([0, 0])
            _fed(cache, first)
            _fed(cache, more)
            if {one.shape[2] for one in leaves(cache)} != {room}:
                yield f"{name} of {first} and {more} has room for {leaves(cache)[0].shape[2]}"
    packed = _BATCHES["BatchQuantizedKVCache"]([0, 0])
    if packed.dequantize_for_apc() != (None, None) or not packed.extract(0).empty():
        yield "no columns are read as some"
    for width in (1, 4):
        got = _fed(packed, width)
        for held, wanted in zip(packed.dequantize_for_apc(), got, strict=True):
            yield from differs(held, plain(wanted), "packed columns as read")
    default = caches.BatchQuantizedKVCache([0])
    if default.meta_state != ("0", "64", "8"):
        yield f"by default rows are packed as {default.meta_state}"


def _prepared() -> Iterator[str]:
    """Left padding comes before tokens; right padding of 0 columns is ignored."""
    for name, make in _BATCHES.items():
        cache = make([1, 0])
        cache.prepare(left_padding=[2, 3], right_padding=[0, 0], lengths=[1, 1])
        cache.finalize()
        got = cache.left_padding.tolist(), cache.offset.tolist()
        if got != ([3, 3], [-3, -3]):
            yield f"{name} prepared for more padding has {got}"
        _fed(cache, 4)
        if cache.offset.tolist() != [1, 1]:
            yield f"{name} behind padding is at {cache.offset}"
        yield from refuses(ValueError, partial(cache.prepare, left_padding=[1, 1]))
    rows = [caches.RotatingKVCache(size) for size in (5, 6)]
    yield from refuses(ValueError, caches.RotatingKVCache.merge, rows)
    window = caches.BatchRotatingKVCache(5, [0])
    yield from refuses(NotImplementedError, window.to_quantized)
    side = caches.BatchKVCache([0, 0])
    side.prepare(right_padding=[1, 0], lengths=[1, 2])
    side.finalize()
    _fed(side, 2)
    side.finalize()
    if (side.left_padding.tolist(), side.offset.tolist()) != ([0, 0], [2, 2]):
        yield f"padding of nothing is at {side.left_padding}, {side.offset}"


def _unfed() -> Iterator[str]:
    """Unfed rows on either side do not change the other rows' columns and dtypes."""
    for first, (name, make) in itertools.product((True, False), _BATCHES.items()):
        fed, bare = make([0, 1]), make([0])
        # Others become float32: a known defect of the caches' own test.
        types = mx.bfloat16 if name == "BatchQuantizedKVCache" else mx.float32
        keys, values = (mx.ones((2, 1, 3, size), types) for size in (GROUP, 2 * GROUP))
        wanted = [plain(one) for one in fed.update_and_fetch(keys, values)]
        both, start = (bare, 1) if first else (fed, 0)
        both.extend(fed if first else bare)
        said = f"{name}, joined by rows that were{'' if first else ' not'} fed"
        if {one.dtype for one in leaves(both)} - {mx.uint32} != {types}:
            yield f"{said}, holds {[one.dtype for one in leaves(both)]}"
        if {one.shape[2] for one in leaves(both)} != {3 if "Rotating" in name else 256}:
            yield f"{said}, has room for {leaves(both)[0].shape[2]}"
        offsets = [0, 3, 2] if first else [3, 2, 0]
        padding = [3, 0, 1] if first else [0, 1, 3]
        if (both.offset.tolist(), both.left_padding.tolist()) != (offsets, padding):
            yield f"{said}, is at {both.offset.tolist()} behind {both.left_padding.tolist()}"
        for held, own in zip((both.keys, both.values), wanted, strict=True):
            yield from differs(mx.array(plain(held)[start : start + 2, :, :3]), own, said)
        both.filter([start, start + 1])
        _fed(both, 1)
        if both.offset.tolist() != [4, 3]:
            yield f"{said}, is at {both.offset.tolist()} without them"
    for first in (True, False):
        yield from _unfed_states(first=first)


def _unfed_states(*, first: bool) -> Iterator[str]:
    """The same for states and pooled windows."""
    fed, bare = caches.ArraysCache(2), caches.ArraysCache(2, [0])
    fed[1] = mx.ones((2, 3), mx.bfloat16)
    pools = caches.BatchPoolingCache(2, [0, 0]), caches.BatchPoolingCache(2, [0])
    given = mx.ones((2, 3, 1), mx.bfloat16), mx.ones((2, 3, 2), mx.float16)
    pools[0].update_and_fetch(pools[0].accumulate_windows(*given, 0)[0][:, ::2])
    for one, other in ((fed, bare), pools):
        both = other if first else one
        both.extend(one if first else other)
        types = [None if one is None else one.dtype for one in both.state]
        kinds = ([None, mx.bfloat16], [mx.bfloat16, mx.float16, mx.bfloat16])
        if types not in kinds:
            yield f"rows joined by others that were not fed hold {types}"
        for held in both.state:
            if held is not None and held.shape[0] != 3:
                yield f"two rows and one are {held.shape[0]}"
            elif held is not None and mx.any(held[0 if first else 2]).item():
                yield "rows that were not fed hold something"


def _of_model() -> Iterator[str]:
    """One cache a layer, or the model's own; a bound keeps four first tokens; the last is plain."""
    own = [caches.ArraysCache(1)]
    layers = [None] * 3
    for bound in (None, 8):
        if caches.make_prompt_cache(SimpleNamespace(make_cache=lambda: own), bound) is not own:
            yield f"with a bound of {bound} a model's own caches are not taken"
        made = caches.make_prompt_cache(SimpleNamespace(layers=layers), bound)
        kind = caches.KVCache if bound is None else caches.RotatingKVCache
        if [type(one) for one in made] != [kind] * 3 or len(set(map(id, made))) != 3:
            yield f"with a bound of {bound} caches are {made}"
        if bound and [(one.max_size, one.keep, one.offset) for one in made] != [(8, 4, 0)] * 3:
            yield f"with a bound of {bound} the first {made[0].keep} of {made[0].max_size} stay"
    for count in range(1, 6):
        got = [caches.should_quantize_kv_layer(layer, count) for layer in range(count)]
        if got != [count <= 2 or layer < count - 1 for layer in range(count)]:
            yield f"of {count} layers {got} are quantized"
    for width, offset, array, window in (
        (1, 3, True, None),
        (1, 3, False, None),
        (2, 3, False, None),
    ):
        got = caches.create_attention_mask(width, offset, array, window)
        if got != (None if width == 1 else "causal"):
            yield f"the mask of {width} is {got}"
    for width, array, window in ((1, False, 2), (3, True, None), (3, False, 2)):
        query, key = np.arange(4, 4 + width)[:, None], np.arange(4 + width)
        wanted = (key <= query) & (query - key < (window or 99))
        got = caches.create_attention_mask(width, 4, array, window)
        yield from differs(got, wanted, f"the mask of {width} after 4 in a window of {window}")


class _Bare(caches._BaseCache):  # type: ignore[misc]
    """A cache without methods of its own."""


def _all() -> Iterator[str]:
    """A cache without methods has no state and no size, and cannot be cut or joined."""
    bare = _Bare()
    said = bare.state, bare.meta_state, bare.size(), bare.is_trimmable(), bare.memory_profile(3)
    if said != ([], "", 0, False, None) or bare.prefix_cache_merge([bare], [0]) is not None:
        yield f"a cache without methods says {said}"
    if bare.prefix_cache_snapshot() != {"state": [], "meta_state": ""}:
        yield f"it is kept as {bare.prefix_cache_snapshot()}"
    if tuple(bare.prefix_cache_reserve(9)) != ():
        yield "it makes room"
    nothings: list[Any] = [None, [], ()]
    for nothing in nothings:
        bare.state, bare.meta_state = nothing, nothing
    for name in ("state", "meta_state"):
        yield from refuses(ValueError, partial(setattr, bare, name), [1])
    if type(_Bare.from_state([], "")) is not _Bare:
        yield "it is not made of its state"
    yield from refuses(NotImplementedError, lambda: bare.nbytes)
    yield from refuses(NotImplementedError, bare.empty)
    states = caches.ArraysCache(2, [1, 4])
    states.lengths = mx.array([5, 2])
    states[1] = mx.ones((2, 3))
    back = caches.ArraysCache(1)
    back.prefix_cache_restore(states.prefix_cache_snapshot())
    for name, wanted in (("left_padding", [1, 4]), ("lengths", [5, 2])):
        yield from differs(getattr(back, name), np.array(wanted, np.int32), f"{name}, restored")
    yield from differs(back[1], np.ones((2, 3), np.float32), "a state that is restored")
    bare_states = {"state": [None], "meta_state": ""}
    back.prefix_cache_restore(bare_states)
    if (back.left_padding, back.lengths, back.state) != (None, None, [None]):
        yield "states of an older snapshot have padding or lengths"
    profile = states.memory_profile(2)
    if (profile.source_bytes, profile.fixed_bytes, profile.bytes_per_token) != (24, 24, 0):
        yield f"states take {profile}"
    for axis, shape in ((1, (2, 5)), (2, (2, 3, 5, 2))):
        given, shifts = drawn(axis, *shape), [1, 3]
        rolled = np.stack(
            [np.roll(one, by, axis - 1) for one, by in zip(given, shifts, strict=True)]
        )
        by = mx.array(shifts) if axis == 1 else mx.array(shifts)[:, None]
        yield from differs(caches.dynamic_roll(mx.array(given), by, axis), rolled, "rolled columns")


def _lists() -> Iterator[str]:
    """A list combines its parts: it can be cut if all can, has the largest size and all bytes."""
    parts = caches.KVCache(), caches.KVCache()
    listed = caches.CacheList(*parts)
    if not listed.empty():
        yield "a list of empty caches is not empty"
    for part, width in zip(parts, (5, 3), strict=True):
        _fed(part, width)
    said = listed.size(), listed.empty(), listed.is_trimmable(), listed.nbytes
    if said != (5, False, True, parts[0].nbytes + parts[1].nbytes) or listed[1] is not parts[1]:
        yield f"a list of caches says {said}"
    if (listed.trim(2), [part.offset for part in parts]) != (2, [3, 1]):
        yield f"a list of caches that is cut holds {[part.offset for part in parts]}"
    back = caches.CacheList(caches.KVCache(), caches.KVCache())
    back.state, back.meta_state = listed.state, listed.meta_state
    for made in (back, caches.CacheList.from_state(listed.state, listed.meta_state)):
        for part, own in zip(made.caches, parts, strict=True):
            for got, wanted in zip(part.state, own.state, strict=True):
                yield from differs(got, np.array(wanted), "a list that is made of its state")
    window = _fed(rotating := caches.RotatingKVCache(2), 3) and caches.CacheList(parts[0], rotating)
    if not caches.CacheList(caches.KVCache(), parts[0]).empty():
        yield "a list whose first cache is empty is not"
    if window.is_trimmable():
        yield "a list with a full window can be cut"
    again = caches.CacheList(caches.KVCache(), caches.RotatingKVCache(9))
    again.state, again.meta_state = window.state, window.meta_state
    if again.meta_state != window.meta_state or again[1].offset != 3:
        yield f"a list is restored as {again.meta_state}"
