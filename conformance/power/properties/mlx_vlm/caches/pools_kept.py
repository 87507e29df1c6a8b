"""Refusals and kept contents of mlx-vlm's caches of pooled windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import FILE, caches, refuses
from conformance.power.properties.mlx_vlm.caches.pools import GATE, NAMES, SIZE, Pool

_ENDLESS = 2**31


def cache_pool_kept_properties() -> list[Property]:
    """The properties of errors, prompt lengths, snapshots and joined rows."""
    return [
        Property("caches: pooled blocks that are refused", FILE, NAMES, _refused),
        Property("caches: pooled windows as they are kept", FILE, NAMES, _kept),
    ]


def _fed(*, batch: bool, total: int = 3, fed: int = 0) -> Any:
    pool = Pool(2, [1, 1], batch=batch)
    pool.cache.start_speculation(total)
    if fed:
        pool.feed(fed)
    return pool.cache


def _refused() -> Iterator[str]:
    """Empty blocks, more tokens than announced, and unfed tokens are refused."""
    for batch in (True, False):
        plain = Pool(2, [1, 1], batch=batch).cache
        yield from refuses(ValueError, plain.start_speculation, 0)
        yield from refuses(ValueError, plain.start_speculation, -1)
        yield from refuses(RuntimeError, plain.commit_speculation, 0)
        for lengths in ([1], [1, 1, 1], [-1, -1], [4, 4], 4, -1):
            yield from refuses(ValueError, _fed(batch=batch, fed=3).commit_speculation, lengths)
        for fed in (0, 2):
            yield from refuses(RuntimeError, _fed(batch=batch, fed=fed).commit_speculation, 1)
        for number in (0, 2):
            yield from refuses(RuntimeError, _fed(batch=batch, fed=3).commit_speculation, 1, number)
        for fed, more in ((0, 4), (2, 2), (3, 1)):
            keys, gates = mx.zeros((2, more, SIZE)), mx.zeros((2, more, GATE))
            call = _fed(batch=batch, fed=fed).accumulate_windows
            yield from refuses(ValueError, call, keys, gates, 0)
    yield from refuses(ValueError, _fed(batch=False, fed=3).commit_speculation, [1, 2])
    if plain.start_speculation("2") != 1:
        yield "a length that is no number is not made one"
    yield from _prepared()
    for made in (caches.PoolingCache(4), caches.BatchPoolingCache(4, [0, 1])):
        made.start_speculation(5)
        types = mx.bfloat16, mx.float16
        made.accumulate_windows(*(mx.ones((2, 5, SIZE), one) for one in types), 0)
        made.commit_speculation(3)
        if (made.buf_kv.dtype, made.buf_gate.dtype) != types:
            yield f"what a block leaves is {made.buf_kv.dtype}, {made.buf_gate.dtype}"
    made = caches.PoolingCache(2)
    made.update_and_fetch(made.accumulate_windows(*[mx.ones((1, 3, 1), mx.bfloat16)] * 2, 0)[0])
    merged = made.merge([made, caches.PoolingCache(2)])
    if {one.dtype for one in merged.state} != {mx.bfloat16}:
        yield f"rows put together are {merged.state}"


def _prepared() -> Iterator[str]:
    """A batch takes lengths and padding only when empty, and for its number of rows."""
    keys, gates = mx.zeros((2, 1, SIZE)), mx.zeros((2, 1, GATE))
    yield from refuses(
        ValueError, caches.BatchPoolingCache(2, [0]).accumulate_windows, keys, gates, 0
    )
    for fed in (1, 2):
        prepare = Pool(2, [fed, fed], batch=True).cache.prepare
        yield from refuses(ValueError, partial(prepare, left_padding=[1, 1]))
    empty = caches.BatchPoolingCache(3, mx.array([1, 0]))
    yield from refuses(ValueError, partial(empty.prepare, left_padding=[1]))
    empty.prepare(left_padding=mx.array([1, 2]), lengths=[4, 3])
    if (empty.left_padding, empty._lengths) != ([2, 2], [4, 3]):
        yield f"a batch is prepared for {empty.left_padding}, {empty._lengths}"
    none = caches.BatchPoolingCache(2, [])
    none.pooled = mx.zeros((0, 2, SIZE))
    none.start_speculation(1)
    none.commit_speculation([])
    if none.pooled is not None or none.offset.dtype != mx.int32:
        yield f"a batch of no rows holds windows: {none.pooled}, {none.offset.dtype}"
    # A block ends where a row's prompt does.
    pool = Pool(2, [3, 1], batch=True)
    pool.cache.prepare(lengths=[1, 9])
    pool.cache.start_speculation(3)
    pool.feed(3)
    pool.cache.commit_speculation([3, 2])
    pool.cut([4, 3], [4, 3])
    yield from pool.wrong("a row whose prompt ends in a block")
    if pool.cache._lengths != [4, 10]:
        yield f"its prompts end at {pool.cache._lengths}"
    pool.cache.finalize()
    if pool.cache._lengths != [_ENDLESS] * 2:
        yield f"without a prompt rows end at {pool.cache._lengths}"


def _kept() -> Iterator[str]:
    """A cache kept by prefix caching, or restored from its state, is the same cache."""
    for before in (0, 1, 3, 5):
        pool = Pool(2, [before], batch=False)
        snapshot = pool.cache.prefix_cache_snapshot()
        back = caches.PoolingCache(9)
        back.prefix_cache_restore(snapshot)
        for made in (back, caches.PoolingCache.from_state(pool.cache.state, pool.cache.meta_state)):
            pool.cache = made
            yield from pool.wrong(f"{before} tokens that were kept")
            if (made.ratio, made.empty(), made.size()) != (2, before == 0, before // 2):
                yield f"{before} tokens that were kept: {made.ratio}, {made.size()}"
            if made.batch_size != 1 or made.offset != before // 2:
                yield f"{before} tokens that were kept: {made.offset} windows"
    for counts in ([3, 1], [1, 0], [3, 5]):
        alone = [Pool(2, [count], batch=False) for count in counts]
        rows = [one.cache for one in alone]
        for merged in (rows[0].prefix_cache_merge(rows, counts), caches.PoolingCache.merge(rows)):
            pool = Pool(2, counts, batch=True)
            pool.cache = merged
            pool.tokens, pool.gates = alone[0].tokens[[0, 0]], alone[0].gates[[0, 0]]
            pool.start = counts
            yield from pool.wrong(f"rows of {counts} that were kept")
            for row, one in enumerate(alone):
                one.cache = merged.extract(row)
                yield from one.wrong(f"row {row} of {counts}, taken out")
                if one.cache.empty() != (counts[row] == 0):
                    yield f"row {row} of {counts}, taken out, is empty: {one.cache.empty()}"
    if rows[0].prefix_cache_merge([rows[0], caches.KVCache()], [1, 2]) is not None:
        yield "rows of other kinds are put together"
    other = caches.PoolingCache(3)
    yield from refuses(ValueError, caches.PoolingCache.merge, [rows[0], other])
    batch = Pool(2, [3, 5], batch=True)
    kept = batch.cache.meta_state
    for meta, left in ((kept, [0, 0]), (kept[:4], [0, 0]), ((*kept[:4], [2, 1]), [2, 1])):
        made = caches.BatchPoolingCache.from_state(batch.cache.state, meta)
        got = made.ratio, made.remainder, made._pool_lengths, made._processed, made._lengths
        if got != (2, [1, 1], [1, 2], [3, 5], [_ENDLESS] * 2) or made.left_padding != left:
            yield f"a batch that was kept has {got}, {made.left_padding}"
        if made.is_speculating or made.offset.tolist() != [1, 2] or made.offset.dtype != mx.int32:
            yield f"a batch that was kept has the offset {made.offset}"
