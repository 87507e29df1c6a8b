"""What mlx-vlm reads of files, and what it refuses to keep, where memory is bounded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.prefix_store.memory import (
    BLOCK,
    TOKEN,
    apc,
    keys_and_values,
    plain_caches,
    pool_of,
)

_FILE = "mlx_vlm/apc.py"
# Columns that a cache grows by.
_STEP = 256


def memory_bound_properties() -> list[Property]:
    """Those of ``APCManager``'s calls, each with bounds."""
    room = ("APCManager.*",)
    return [
        Property("memory: files where little is free", _FILE, room, _files),
        Property("memory: bounds of what is looked for", _FILE, room, _bounded),
        Property("memory: snapshots of files", _FILE, room, _promoted),
        Property("memory: snapshots that are refused", _FILE, room, _refused),
    ]


def _files() -> Iterator[str]:
    """Nothing is read where too little is free, which is counted where it was looked for."""
    tokens = list(range(2 * BLOCK + 1))
    with TemporaryDirectory() as folder:
        manager = pool_of(folder, snapshots=0)
        manager.release(manager.store_kv_blocks(tokens, *keys_and_values(len(tokens))))
        manager.store_exact_cache(tokens[:6], plain_caches(6), extra_hash=3)
        manager.disk.flush()
        asked = {
            "blocks": lambda: manager.lookup_prefix_disk_cache(tokens, allow_memory_overlap=True),
            "a snapshot": lambda: manager.lookup_exact_cache(tokens, extra_hash=3),
        }
        names = list(manager.disk._index)
        sizes = {
            "blocks": manager.disk.prefix_cache_bytes(names),
            "a snapshot": next(
                manager.disk.exact_cache_bytes(n) for n in manager.disk._exact_index
            ),
        }
        try:
            for what, ask in asked.items():
                yield from _where_little_is_free(manager, what, ask, sizes[what])
        finally:
            manager.close()


def _bounded() -> Iterator[str]:
    """At most and at least so many tokens; of files that say something else, none."""
    tokens = list(range(3 * BLOCK + 1))
    with TemporaryDirectory() as folder:
        manager = pool_of(folder, snapshots=0)
        manager.release(manager.store_kv_blocks(tokens, *keys_and_values(len(tokens))))
        manager.disk.flush()
        manager.clear()
        ask = manager.lookup_prefix_disk_cache
        for most, least in itertools.product((None, 0, 3, 4, 7, 8, 99), (0, 3, 4, 11, 12)):
            count = min(12, most // BLOCK * BLOCK if most else 12)
            got = ask(tokens, max_prefix_tokens=most, min_prefix_tokens=least)
            if got[1] != (count if count > least else 0):
                yield f"of 12 tokens in files, {least} to {most}, {got[1]} are found"
        keys, values, about = manager.disk.load_layer_major_prefix(list(manager.disk._index))
        said = [{"token_ids": m["token_ids"]} for m in about]
        for changed, found in (
            (said, True),
            ([{**m, "extra_hash": "0"} for m in said], True),
            ([{**m, "extra_hash": "1"} for m in said], False),
            ([{**m, "extra_hash": "x"} for m in said], False),
            ([{"token_ids": "7,8"}, *said[1:]], False),
            ([{"token_ids": "x"}, *said[1:]], False),
            ([*said[1:], {}], False),
            (said[1:], False),
        ):
            loaded = keys, values, changed
            with patch.object(
                manager.disk, "load_layer_major_prefix", lambda _, given=loaded: given
            ):
                got = ask(tokens)
                if (got[0] is not None, got[1]) != (found, 12 * found):
                    yield f"blocks that are said to be {changed} are found: {not found}"
        manager.close()
    yield from _blocks_of_one()


def _promoted() -> Iterator[str]:
    """A snapshot of a file is kept in memory where there is room, and read once."""
    tokens = list(range(9))
    for snapshots, most in ((0, _STEP * TOKEN), (2, 1 << 30), (2, 6 * TOKEN)):
        with TemporaryDirectory() as folder:
            manager = pool_of(folder, snapshots=snapshots)
            manager.store_exact_cache(tokens[:6], plain_caches(6), extra_hash=3)
            manager.disk.flush()
            manager.clear()
            manager.memory_max_bytes = most
            stats = manager.stats
            stats.exact_hits = stats.hits = stats.matched_tokens = stats.disk_hits = 5
            manager.release(manager.store_kv_blocks(tokens[:4], *keys_and_values(4), extra_hash=9))
            for number in (1, 2):
                found, count = manager.lookup_exact_cache(tokens, extra_hash=3)
                for cache, right in zip(found or (), plain_caches(6), strict=True):
                    if cache.offset != 6 or not mx.array_equal(cache.state[0], right.state[0]):
                        yield "a snapshot of a file is not what was kept"
                    # The prompt goes on in it; what is kept must not change with it.
                    cache.keys[...] = 9.0
                read = 1 if snapshots and most > 6 * TOKEN else number
                counted = stats.exact_hits, stats.hits, stats.matched_tokens, stats.disk_hits
                wanted = tuple(5 + n for n in (number, number, 6 * number, read))
                if count != 6 or counted != wanted:
                    yield f"after lookup {number} with {snapshots} snapshots: {counted}"
            for options, length in (
                ({"max_prefix_tokens": 5}, 4),
                ({"max_prefix_tokens": 6}, 6),
                ({"max_prefix_tokens": 0}, 6),
                ({"min_prefix_tokens": 5}, 6),
                ({"min_prefix_tokens": 6}, 0),
            ):
                got = manager.lookup_exact_cache(tokens, extra_hash=3, **options)
                if got[1] != length:
                    yield f"with {options} {got[1]} tokens of a snapshot are found"
            if snapshots == 0 and manager.lookup_prefix(tokens[:4], extra_hash=9)[1] != 4:
                yield "blocks are given up for a snapshot that is not kept"
            manager._memory_headroom = lambda: 0
            skipped = stats.memory_skips
            got = manager.lookup_exact_cache(tokens, extra_hash=3)
            if got != (None, 0) or stats.memory_skips != skipped + 1:
                yield f"without memory a snapshot is found, {stats.memory_skips} left out"
            manager.close()


def _blocks_of_one() -> Iterator[str]:
    single = pool_of(block_size=1)
    single.release(single.store_kv_blocks([7], *keys_and_values(1)))
    got = single.lookup_prefix([7])[1], single.lookup_prefix([8])[1]
    if got != (1, 0) or (single.stats.hits, single.stats.misses) != (1, 1):
        yield f"of blocks of one token {got} are found, {single.stats.hits} counted"


def _where_little_is_free(manager: Any, what: str, ask: Any, size: int) -> Iterator[str]:
    count = {"blocks": 8, "a snapshot": 6}[what]
    for least, free, found in (
        (100, 99, False),
        (100, 100, True),
        (100, None, True),
        (0, 0, True),
        (1, 0, False),
    ):
        manager._disk_min_free_ram_bytes = least
        manager.stats = apc.APCStats()
        with patch.object(apc, "_free_ram_bytes", lambda free=free: free):
            got = ask()
        if got[1] != count * found or (got[0] is not None) != found:
            yield f"with {free} bytes free, {least} at least, {got[1]} tokens of {what} are found"
        stats, blocks = manager.stats, what == "blocks"
        counted = stats.hits, stats.matched_tokens, stats.disk_hits, stats.exact_hits
        wanted = (1, count, 2, 0) if blocks else (1, count, 1, 1)
        if stats.memory_skips or counted != (wanted if found else (0, 0, 0, 0)):
            yield f"{what}: {counted} are counted, {stats.memory_skips} left out"
    manager._disk_min_free_ram_bytes = 0
    before = manager._memory_headroom
    # A snapshot grows by whole steps for the prompt that it is found for.
    least = 2 * (size if what == "blocks" else _STEP * TOKEN)
    for room in (2 * size - 1, least - 1, least):
        manager.stats = apc.APCStats()
        manager._memory_headroom = lambda room=room: room
        got = ask()
        found = room >= least
        if (got[0] is not None, manager.stats.memory_skips) != (found, 1 - found):
            yield f"{what} of {size} bytes with {room} free: {got[1]} tokens are found"
    manager._memory_headroom = before


def _refused() -> Iterator[str]:
    """Too short, too large, without room for one, or of caches that cannot be copied."""
    apc.logger.disabled = True
    size = 6 * TOKEN
    cases: list[tuple[dict[str, Any], int, bool, tuple[int, int, int]]] = [
        ({}, 6, True, (1, 0, 0)),
        ({"exact_cache_min_tokens": 6}, 6, True, (1, 0, 0)),
        ({"exact_cache_min_tokens": 7}, 6, False, (0, 0, 0)),
        ({}, 0, False, (0, 0, 0)),
        ({"_exact_cache_max": 0}, 6, False, (0, 0, 0)),
        ({"memory_max_bytes": size}, 6, True, (1, 0, 0)),
        ({"memory_max_bytes": size - 1}, 6, False, (0, 1, 0)),
    ]
    for settings, count, stored, wanted in cases:
        manager = pool_of()
        vars(manager).update(settings)
        got = manager.store_exact_cache(
            list(range(count)), plain_caches(max(count, 1)), extra_hash=2
        )
        stats = manager.stats
        counted = stats.exact_stores, stats.memory_skips, stats.rejects
        if (got, counted, len(manager._exact_cache)) != (stored, wanted, int(stored)):
            yield f"a snapshot of {count} tokens with {settings} is {got}, counted as {counted}"
    manager = pool_of()
    got = manager.store_exact_cache([1, 2], [object()], extra_hash=2)
    said = {"reason": "unclonable", "types": ["object"], "token_len": 2}
    if got or manager.stats.last_reject != said or manager.stats.exact_stores:
        yield f"caches that cannot be copied are {got}: {manager.stats.last_reject}"
    apc.logger.disabled = False
    with TemporaryDirectory() as folder:
        manager = pool_of(folder)
        manager.memory_max_bytes = size - 1
        got = manager.store_exact_cache(list(range(6)), plain_caches(6), extra_hash=2)
        both = manager.stats.exact_stores, manager.stats.memory_skips
        if not got or both != (1, 1) or manager._exact_cache or manager.disk.pending_bytes:
            yield f"a snapshot that is too large for memory is {got} in files, {both}"
        if manager.disk.num_exact_indexed != 1:
            yield "what is written at once is not known at once"
        found, count = manager.lookup_exact_cache([*range(6), 99], extra_hash=2)
        right = [cache.state for cache in plain_caches(6)]
        for cache, (keys, values) in zip(found or (), right, strict=found is not None):
            if not (
                mx.array_equal(cache.state[0], keys) and mx.array_equal(cache.state[1], values)
            ):
                yield "a snapshot of a file is not what was kept"
        if count != 6 or manager._exact_cache:
            yield f"{count} tokens of a file are found, or kept where there is no room"
        manager.close()
