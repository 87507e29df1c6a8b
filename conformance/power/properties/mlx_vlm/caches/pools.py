"""Blocks of drafted tokens in caches of pooled windows: only kept tokens have an effect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import (
    FILE,
    caches,
    commits,
    differs,
    drawn,
    kept_of,
    refuses,
)

SIZE, GATE = 3, 2
_MOST = 24
_NAMES = ("PoolingCache.*", "BatchPoolingCache.*", "*_pooling_*", "_speculative_lengths")


def cache_pool_properties() -> list[Property]:
    """The properties of blocks that end, are given up or refused."""
    return [
        Property("caches: blocks of pooled windows", FILE, _NAMES, _single),
        Property("caches: blocks of pooled rows", FILE, _NAMES, _rows),
        Property("caches: pooled blocks given up", FILE, _NAMES, _given_up),
        Property("caches: pooled blocks that are refused", FILE, _NAMES, _refused),
    ]


class Pool:
    """A cache with rows of given lengths, and the tokens that it must hold.

    Attributes:
        counts: tokens of each row so far.
    """

    def __init__(self, ratio: int, before: Sequence[int], *, batch: bool) -> None:
        self.ratio, self.rows = ratio, len(before)
        self.tokens = drawn(self.rows, self.rows, _MOST, SIZE)
        self.gates = drawn(9, self.rows, _MOST, GATE)
        width = max(before)
        padding = [width - count for count in before]
        made = caches.BatchPoolingCache(ratio, padding) if batch else caches.PoolingCache(ratio)
        self.cache, self.batch = made, batch
        self.counts = [0] * self.rows
        self.start = [-one for one in padding]
        if width:
            self.feed(width)

    def given(self, width: int) -> tuple[mx.array, mx.array]:
        """The next columns of each row, padding where a row has not begun."""
        found = []
        for array in (self.tokens, self.gates):
            row_of = [np.arange(start, start + width) for start in self.start]
            columns = [array[row, np.maximum(at, 0)] for row, at in enumerate(row_of)]
            found.append(mx.array(np.stack(columns)))
        return found[0], found[1]

    def feed(self, width: int) -> tuple[Any, Any]:
        """Feed like an attention layer, with the sum of a window as its pooled token."""
        keys, gates = self.given(width)
        windows, weights, base = self.cache.accumulate_windows(keys, gates, mx.array(self.start))
        rows, columns, _ = windows.shape
        pooled = windows.reshape(rows, columns // self.ratio, self.ratio, SIZE).sum(axis=2)
        self.fetched = self.cache.update_and_fetch(pooled)
        self.start = [one + width for one in self.start]
        self.counts = [max(0, one) for one in self.start]
        return weights, base

    def wrong(self, said: str, spare: int = 0) -> Iterator[str]:
        """Where the cache differs from one fed just these tokens, with ``spare`` spare columns."""
        cache, ratio = self.cache, self.ratio
        rest = [count % ratio for count in self.counts]
        done = [count // ratio for count in self.counts]
        if self.batch:
            state = [cache.remainder, cache._pool_lengths, cache._processed, cache.left_padding]
            left = [max(0, -one) for one in self.start]
            if state != [rest, done, self.counts, left]:
                yield f"{said}: rows of {self.counts} tokens have {state}"
        elif cache.remainder != rest[0]:
            yield f"{said}: {cache.remainder} tokens of {self.counts} are left over"
        for held, array in ((cache.buf_kv, self.tokens), (cache.buf_gate, self.gates)):
            for row, count in enumerate(rest):
                tail = array[row, self.counts[row] - count : self.counts[row]]
                if count:
                    yield from differs(held[row, :count], tail, f"{said}: the rest of row {row}")
        if (cache.pooled is None) != (max(done) == 0):
            yield f"{said}: pooled windows are {cache.pooled}"
        elif cache.pooled is not None and not 0 <= cache.pooled.shape[1] - max(done) <= spare:
            yield f"{said}: pooled windows are of {cache.pooled.shape}"
        elif cache.pooled is not None:
            for row, count in enumerate(done):
                wanted = self.tokens[row, : count * ratio].reshape(count, ratio, SIZE).sum(axis=1)
                yield from differs(cache.pooled[row, :count], wanted, f"{said}: windows of {row}")

    def windows(self, before: Sequence[int], weights: Any, base: Any, said: str) -> Iterator[str]:
        """Where the gates or first positions of the ended windows differ."""
        first, last = ([one // self.ratio * self.ratio for one in x] for x in (before, self.counts))
        wanted = [a if a < b else 0 for a, b in zip(first, last, strict=True)]
        got = base.tolist() if isinstance(base, mx.array) else [base] * self.rows
        fetched, pooled = self.fetched, self.cache.pooled
        if (fetched.shape != (self.rows, 0, SIZE)) if pooled is None else (fetched is not pooled):
            yield f"{said}: pooled windows of {fetched.shape} are given"
        if got != wanted:
            yield f"{said}: windows begin at {got}, not {wanted}"
        for row, (a, b) in enumerate(zip(first, last, strict=True)):
            gates = self.gates[row, a:b]
            yield from differs(weights[row, : b - a], gates, f"{said}: gates of row {row}")

    def held(self) -> int:
        """Bytes of the contents between blocks."""
        done = 0 if self.cache.pooled is None else self.cache.pooled.shape[1]
        fed = any(self.counts)
        return 4 * self.rows * (done * SIZE + fed * self.ratio * (SIZE + GATE))

    def cut(self, counts: Sequence[int], start: Sequence[int]) -> None:
        """Set the tokens that the cache must hold."""
        self.counts, self.start = list(counts), list(start)


def _single() -> Iterator[str]:
    """A single stream's cache, and several rows of one length."""
    count = itertools.cycle([1, 2, 1])
    for ratio, before, total in itertools.product((2, 3), (0, 2, 4), (1, 4)):
        for keep, pieces in itertools.product(range(total + 1), ([total], [1] * total)):
            pool = Pool(ratio, [before] * next(count), batch=False)
            yield from _block(pool, pieces, keep, f"{before}, {keep} of {pieces} by {ratio}")


def _rows() -> Iterator[str]:
    """Rows of several lengths, some of which begin inside a block or after its padding."""
    prompts = itertools.cycle([[2, 5, 0], [1, -2], [4, 3], [7, -1, 3], [0, 0], [2, 0]])
    for ratio, pieces in itertools.product((2, 3), ([1], [2], [4], [1, 2])):
        for number in range(10):
            before = next(prompts)
            choices = commits(len(before), sum(pieces))
            keep = choices[number % len(choices)]
            pool = Pool(ratio, before, batch=True)
            yield from _block(pool, pieces, keep, f"{before}, {keep} of {pieces} by {ratio}")


def _block(pool: Pool, pieces: Sequence[int], keep: Any, said: str) -> Iterator[str]:
    cache, start = pool.cache, list(pool.start)
    total, bare, before = sum(pieces), pool.held(), list(pool.counts)
    if cache.nbytes != bare:
        yield f"{said}: it takes {cache.nbytes} bytes before, not {bare}"
    number = cache.start_speculation(total)
    if not cache.is_speculating:
        yield f"{said}: there is no block"
    for width in pieces:
        pool.feed(width)
    fed = list(pool.counts)
    cache.commit_speculation(keep, number) if total > 1 else cache.commit_speculation(keep)
    kept = kept_of(keep, pool.rows)
    start = [one + count for one, count in zip(start, kept, strict=True)]
    pool.cut([max(0, one) for one in start], start)
    yield from pool.wrong(said)
    ends = [one // pool.ratio for one in fed]
    if any(end > one // pool.ratio for end, one in zip(ends, before, strict=True)):
        for row, held in enumerate(np.array(cache.buf_kv)):
            if held[pool.counts[row] % pool.ratio :].any():
                yield f"{said}: behind the rest of row {row} is something"
    if cache.is_speculating:
        yield f"{said}: the block is not at its end"
    for width in (1, 3):
        counts = pool.counts
        yield from pool.windows(counts, *pool.feed(width), said)
        # A row that ends a window may make room behind a longer one.
        yield from pool.wrong(f"{said}, and {width} more", spare=2 * (pool.rows > 1))
    if cache.start_speculation(1) != number + 1:
        yield f"{said}: another block has the number of one before"


def _given_up() -> Iterator[str]:
    """A discarded block leaves nothing; its bytes are counted once meanwhile."""
    for ratio, before, batch in itertools.product((2, 4), ([2, 5], [3, 3]), (True, False)):
        for total in (1, 4):
            pool = Pool(ratio, before[:1] if not batch else before, batch=batch)
            cache, counts, start = pool.cache, list(pool.counts), list(pool.start)
            cache.abort_speculation()
            bare = pool.held()
            number = cache.start_speculation(total)
            for width in (1, total - 1) if total > 1 else (1,):
                pool.feed(width)
            needs = max(count % ratio for count in counts) + total >= ratio
            more = 4 * pool.rows * total * (SIZE + GATE) * needs
            # Earlier pooled tokens and needed buffers stay until the end.
            more += 4 * pool.rows * needs * ratio * (SIZE + GATE)
            grown = max(one // ratio for one in pool.counts) > max(one // ratio for one in counts)
            more += 4 * pool.rows * SIZE * max(one // ratio for one in counts) * grown
            more += pool.held() - bare
            if cache.nbytes != bare + more:
                yield f"a block of {total} after {counts} takes {cache.nbytes - bare}, not {more}"
            yield from refuses(RuntimeError, cache.abort_speculation, number + 1)
            cache.abort_speculation(number) if batch else cache.abort_speculation()
            pool.cut(counts, start)
            yield from pool.wrong(f"after {total} tokens that are given up")
            if cache.is_speculating or cache.nbytes != bare:
                yield f"a block that is given up leaves {cache.nbytes} bytes, not {bare}"


_ENDLESS = 2**31


def _begun(*, batch: bool, total: int = 3, fed: int = 0) -> Any:
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
            yield from refuses(ValueError, _begun(batch=batch, fed=3).commit_speculation, lengths)
        for fed in (0, 2):
            yield from refuses(RuntimeError, _begun(batch=batch, fed=fed).commit_speculation, 1)
        for number in (0, 2):
            yield from refuses(
                RuntimeError, _begun(batch=batch, fed=3).commit_speculation, 1, number
            )
        for fed, more in ((0, 4), (2, 2), (3, 1)):
            keys, gates = mx.zeros((2, more, SIZE)), mx.zeros((2, more, GATE))
            call = _begun(batch=batch, fed=fed).accumulate_windows
            yield from refuses(ValueError, call, keys, gates, 0)
    yield from refuses(ValueError, _begun(batch=False, fed=3).commit_speculation, [1, 2])
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
