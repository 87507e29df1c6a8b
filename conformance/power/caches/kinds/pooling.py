"""Caches of pooled tokens: each full window of tokens becomes one token, the rest is buffered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.power.caches.finding import Problem, Problems
from conformance.power.caches.kinds.kind import Kind, as_numpy
from conformance.power.caches.kinds.visibility import decoded
from conformance.power.caches.rows import Array, Feed, Row, Token, coded

_RATIO = 3
_SIZE = 4
_KEY, _GATE = 0, 1


class Pooling(Kind):
    """Several rows; this test's "compressor" concatenates the tokens of a window."""

    joins_while_prepared = True
    leaves_while_prepared = True
    checks_size = False

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(_RATIO, list(padding))

    def partner(self) -> Kind:
        """The single-stream cache."""
        return PoolingStream(self.module, self.module.PoolingCache)

    def offsets(self, cache: Any) -> list[int] | None:
        """None: pooled tokens are counted, so the contents are compared instead."""

    def feed(self, cache: Any, feed: Feed) -> Problems:
        """Windows, pooled tokens and their mask, in the order in which a model uses them."""
        given = [
            coded(feed.grid, heads=1, size=_SIZE, which=which)[:, 0] for which in (_KEY, _GATE)
        ]
        # The position of column 0 of each row: negative with padding on the left.
        starts = [_first(row, tokens) for row, tokens in zip(feed.rows, feed.grid, strict=True)]
        offset: Any = starts[0] if len(set(starts)) == 1 else mx.array(starts)
        arrays = [mx.array(vectors).astype(self.dtype) for vectors in given]
        keys, gates, base = cache.accumulate_windows(*arrays, offset)
        after = feed.after()
        yield from _windows(feed.rows, after, (as_numpy(keys), as_numpy(gates)))
        yield from _bases(feed.rows, after, base)
        rows, columns = keys.shape[0], keys.shape[1]
        pooled = cache.update_and_fetch(keys.reshape(rows, columns // _RATIO, _RATIO * _SIZE))
        yield from _pooled(after, as_numpy(pooled))
        mask = cache.make_mask(feed.width, offset)
        how = "" if isinstance(offset, mx.array) else f" (offset {offset} given as a number)"
        for problem in _seen(feed, mask, pooled.shape[1]):
            yield Problem(problem.what, problem.text + how)


class PoolingStream(Pooling):
    """The single-stream cache."""

    single = True

    def new(self, padding: Sequence[int]) -> Any:  # noqa: ARG002
        """An empty cache."""
        return self.cls(_RATIO)

    def partner(self) -> Kind:
        """Several rows."""
        return Pooling(self.module, self.module.BatchPoolingCache)


def _first(row: Row, tokens: Sequence[Token]) -> int:
    left = 0
    while left < len(tokens) and not tokens[left].real:
        left += 1
    return len(row) - (left if left < len(tokens) else 0)


def _windows(before: Sequence[Row], after: Sequence[Row], given: tuple[Array, Array]) -> Problems:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        first, last = (len(row) // _RATIO * _RATIO for row in (old, new))
        tokens = new.tokens[first:last]
        if not tokens:
            continue
        for which, name in ((_KEY, "keys"), (_GATE, "gates")):
            wanted = coded([tokens], heads=1, size=_SIZE, which=which)[0, 0]
            found = given[which][index, : len(tokens)]
            if found.shape != wanted.shape or (found != wanted).any():
                names = ", ".join(map(str, tokens[:_RATIO]))
                yield Problem("contents", f"slot {index}: {name} of its window are not of {names}")
                return


def _bases(before: Sequence[Row], after: Sequence[Row], base: Any) -> Problems:
    bases: Any = base.tolist() if isinstance(base, mx.array) else [base] * len(after)
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        first = len(old) // _RATIO * _RATIO
        done = len(new) // _RATIO * _RATIO > first
        found = bases if isinstance(bases, int) else bases[index]
        if done and found != first:
            yield Problem("offset", f"slot {index}: its window starts at {first}, got {found}")
            return


def _pooled(rows: Sequence[Row], pooled: Array) -> Problems:
    for index, row in enumerate(rows):
        tokens = row.tokens[: len(row) // _RATIO * _RATIO]
        if not tokens:
            continue
        wanted = coded([tokens], heads=1, size=_SIZE, which=_KEY)[0, 0]
        found = pooled[index, : len(tokens) // _RATIO].reshape(-1, _SIZE)
        if found.shape != wanted.shape or (found != wanted).any():
            yield Problem("contents", f"slot {index}: its {len(tokens) // _RATIO} pooled tokens")
            return


def _seen(feed: Feed, mask: Any, columns: int) -> Problems:
    rows = len(feed.rows)
    if isinstance(mask, mx.array) and mask.ndim == 3:
        mask = mask[:, None]
    visible = decoded(mask, rows=rows, width=feed.width, columns=columns)
    if isinstance(visible, str):
        yield Problem("shape", visible)
        return
    for index, tokens in enumerate(feed.grid):
        for query, token in enumerate(tokens):
            wanted = np.arange(columns) < (token.position + 1) // _RATIO
            if token.real and (visible[index, query] != wanted).any():
                yield Problem(
                    "mask",
                    f"slot {index}: the query of {token} sees pooled "
                    f"{np.flatnonzero(visible[index, query]).tolist()}, expected "
                    f"{np.flatnonzero(wanted).tolist()}",
                )
                return
