"""Rows of batches that mlx-vlm's prefix caching copies, and batches that it makes of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from conformance.backend.cache_entries import arrays
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store import samples
from conformance.plugins.mlx_vlm.properties.prefix_store.adapter_entries import COPIED, clone

adapters: Any = compat.part("apc_adapters")
apc: Any = compat.part("apc")
caches: Any = compat.part("models.cache")

_FILE = "mlx_vlm/apc*.py"


def adapter_row_properties() -> list[Property]:
    """Those of the functions that take rows out of batches, and merge them."""
    merged = ("merge_cache_entries", "_merge_exact_*", "make_warm_batch_exact_cache_multi")
    taken = ("extract_prompt_*", "snapshot_prompt_*", "_prompt_cache_is_*", "_collect_mx_*")
    return [
        Property("adapters: rows of batches", _FILE, COPIED, _rows),
        Property("adapters: rows taken out", _FILE, taken, _taken_out),
        Property("adapters: rows put together", _FILE, merged, _merged),
        Property("adapters: rows that do not fit", _FILE, merged, _apart),
    ]


def _batch(make: Any, rows: int, padding: int) -> Any:
    batch = make([padding] * rows)
    keys = samples.drawn(1, rows, samples.HEADS, 5, 32)
    batch.update_and_fetch(keys, -keys)
    return batch


def _rows() -> Iterator[str]:
    """Of a batch of one row that row; of more rows, nothing."""
    kinds: dict[str, tuple[Any, Any]] = {
        "BatchKVCache": (caches.BatchKVCache, caches.KVCache),
        "BatchRotatingKVCache": (
            lambda padding: caches.BatchRotatingKVCache(8, padding),
            caches.RotatingKVCache,
        ),
        "BatchQuantizedKVCache": (
            lambda padding: caches.BatchQuantizedKVCache(padding, group_size=32, bits=8),
            caches.QuantizedKVCache,
        ),
    }
    for name, (make, plain) in kinds.items():
        if clone(_batch(make, 2, 0))[0] is not None:
            yield f"of a {name} of two rows there is a copy"
        for padding in (0, 2):
            batch = _batch(make, 1, padding)
            copy, _ = clone(batch)
            if type(copy) is not plain or samples.content(copy) != samples.content(
                batch.extract(0)
            ):
                yield f"of a {name} with {padding} columns of padding a copy is another"
    fresh, _ = clone(caches.BatchKVCache([0]))
    if type(fresh) is not caches.KVCache or fresh.keys is not None:
        yield f"of an empty batch the copy is {fresh}"
    window, _ = clone(caches.BatchRotatingKVCache(7, [0]))
    if type(window) is not caches.RotatingKVCache or (window.max_size, window.keep) != (7, 0):
        yield f"of an empty batch with a window the copy is {window}"


def _taken_out() -> Iterator[str]:
    """One row of each layer's cache, in lists, too; of streams a copy, or they themselves."""
    batch, plain = _batch(caches.BatchKVCache, 3, 1), samples.plain()
    states = caches.ArraysCache(1)
    states[0] = samples.drawn(3, 3, 2)
    layers = [batch, states, caches.CacheList(batch, states)]
    for row, copied in ((0, True), (2, True), (1, False)):
        found = apc.snapshot_prompt_cache_row(layers, row, clone=copied)
        wanted = [samples.content(layer.extract(row)) for layer in layers]
        if [samples.content(one) for one in found] != wanted:
            yield f"of row {row} {[type(one).__name__ for one in found]} are taken out, or others"
        out = apc.extract_prompt_cache_from_batch(layers, row)
        if [samples.content(one) for one in out] != wanted:
            yield f"row {row} is taken out of a batch as another one"
    if samples.content(apc.snapshot_prompt_cache_row(layers)[0]) != samples.content(
        batch.extract(0)
    ):
        yield "another row than the first one is taken out where none is named"
    stream = [samples.simple(), plain]
    borrowed = apc.snapshot_prompt_cache_row(stream, clone=False)
    copy = apc.snapshot_prompt_cache_row(stream, min_capacity_tokens=257)
    if [id(one) for one in borrowed] != [id(one) for one in stream] or borrowed is stream:
        yield "streams that are borrowed are others"
    if copy[1] is plain or copy[1].keys.shape[2] != 512:
        yield f"a copy of a stream has room for {copy[1].keys.shape[2]} tokens"
    for some, shaped in (
        ([], False),
        (layers, True),
        ([plain, states], True),
        (stream, False),
        ([states, *stream], False),
        ([caches.CacheList(states, samples.simple())], False),
        ([caches.CacheList(caches.CacheList(states))], True),
    ):
        if apc._prompt_cache_is_batch_shaped(some) != shaped:
            yield f"{[type(one).__name__ for one in some]} are of a batch: {not shaped}"
    empty, none = apc.snapshot_prompt_cache_row([]), apc.extract_prompt_cache_from_batch(stream, 0)
    if (empty, none) != ([], None) or apc.extract_prompt_cache_from_batch([], 0) != []:
        yield f"of no caches {empty} is taken out, of streams {none}"


def _pair(*both: Any) -> Any:
    return both


# Rows of one class, and the class of their batch; those without tokens are of rows that are new.
_ROWS: dict[str, tuple[list[Callable[[], Any]], str]] = {
    "plain": (
        [lambda: samples.plain(1, 5), caches.KVCache, lambda: samples.plain(2, 3, 0)],
        "BatchKVCache",
    ),
    "windows": ([samples.window, lambda: samples.window(3)], "BatchRotatingKVCache"),
    "states": (
        [samples.state, lambda: caches.ArraysCache(2), lambda: samples.state(5)],
        "ArraysCache",
    ),
    "quantized": (
        [caches.KVCache, lambda: samples.quantized(1), lambda: samples.quantized(2, 3)],
        "BatchQuantizedKVCache",
    ),
    "pools": ([samples.stored()["PoolingCache"]] * 2, "BatchPoolingCache"),
    "indexed": ([samples.stored()["MiniMaxM3KVCache"]] * 2, "MiniMaxM3BatchKVCache"),
}


def _length(cache: Any) -> int:
    """Tokens of a row: of a pool those that are pooled, and those that are not yet."""
    if isinstance(cache, caches.PoolingCache):
        return int(cache.remainder + cache.ratio * cache.pooled.shape[1])
    return int(getattr(cache, "offset", 5))


def _said(cache: Any) -> Any:
    """The state of a row, in the order of its tokens."""
    got = cache.state
    if isinstance(cache, caches.RotatingKVCache) and cache.keys is not None:
        got = [cache._temporal_order(part) for part in (cache.keys, cache.values)]
    return samples.nested(got)


def _merged() -> Iterator[str]:
    """The rows of the batch are what was put together, alone and in lists and tuples."""
    for name, (makers, kind) in _ROWS.items():
        rows = [make() for make in makers]
        lengths = [_length(row) for row in rows]
        wanted = [_said(row) for row in rows]
        (batch,), longest = apc.make_warm_batch_exact_cache_multi([[r] for r in rows], lengths)
        if type(batch).__name__ != kind or longest != max(lengths):
            yield f"of {name} a batch of {longest} tokens is a {type(batch).__name__}"
            continue
        for at, row in enumerate(rows):
            found = batch.extract(at)
            new = row.empty() and not any(a.any().item() for a in arrays(found.state))
            if not new and _said(found) != wanted[at]:
                yield f"row {at} of {name} put together is {_said(found)}, it was {wanted[at]}"
        for container in (caches.CacheList, _pair):
            both = [container(make(), samples.state(4 + n)) for n, make in enumerate(makers)]
            listed = adapters.merge_cache_entries(both, lengths)
            kinds = [type(one).__name__ for one in listed.caches]
            if type(listed) is not caches.CacheList or kinds != [kind, "ArraysCache"]:
                yield f"of lists of {name} a batch is {kinds}"
            state = samples.nested(listed.caches[1].extract(len(rows) - 1).state)
            if state != samples.nested(samples.state(3 + len(rows)).state):
                yield f"in a list of {name} a state is {state}"


class _Merging:
    """A cache of somebody else that is merged by its class."""

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def merge(cls, rows: list[Any], lengths: list[int]) -> Any:
        return cls, [row.number for row in rows], lengths


class _Derived(_Merging):
    """One that inherits how."""


def _apart() -> Iterator[str]:
    """Rows of other classes, other sizes, or without a batch: nothing."""
    plain, state, other = samples.plain(), samples.state(), object()
    merge = adapters.merge_cache_entries
    for name, rows in {
        "nothing": [],
        "two classes": [plain, state],
        "lists of two classes": [caches.CacheList(plain), caches.CacheList(state)],
        "a list and none": [caches.CacheList(plain), plain],
        "a list and a tuple": [caches.CacheList(plain), (plain,)],
        "lists of which a part has no batch": [caches.CacheList(plain, other)] * 2,
        "tuples of which a part has no batch": [(other, plain)] * 2,
        "objects": [other, other],
        "classes that inherit it": [_Derived(1), _Derived(2)],
        "a class and its base": [_Merging(1), _Derived(2)],
    }.items():
        if merge(rows, [5] * len(rows)) is not None:
            yield f"of {name} there is a batch"
    one = merge([plain], [5])
    if type(one) is not caches.BatchKVCache or _said(one.extract(0)) != _said(plain):
        yield f"of one row a batch is {one}"
    asked = SimpleNamespace(prefix_cache_merge=lambda *given: given)
    if merge([other, asked], [5, 6]) != ([other, asked], [5, 6]):
        yield "a row that merges is not asked where another one does not"
    got = merge([_Merging(3), _Merging(4)], [5, 6])
    if got != (_Merging, [3, 4], [5, 6]):
        yield f"a class that merges its rows is asked for {got}"
    warm = apc.make_warm_batch_exact_cache_multi
    for rows, lengths, wanted in (
        ([], [], ([], 0)),
        ([[plain]], [5, 6], (None, 0)),
        ([[plain], [plain, plain]], [5, 5], (None, 0)),
        ([[plain, other]] * 2, [5, 5], (None, 0)),
    ):
        if warm(rows, lengths) != wanted:
            yield f"of {len(rows)} rows with lengths {lengths} a batch is {warm(rows, lengths)}"
