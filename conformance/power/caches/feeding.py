"""Feeds prompts and tokens to a cache: single-stream, padded on either side, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance.power.caches.finding import Problem, at_once
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.rows import Feed, Row, Token, padded

_MOST = 9
_JOIN, _LEAVE = 1, 2
UNFED = 60
"""From this number for the way of feeding on, rows join before they are fed."""


class Feeding:
    """Feeds a cache; numbers rows and writes, so that all tokens differ."""

    def __init__(
        self,
        kind: Kind,
        report: Callable[[Problem, set[str]], None],
        note: Callable[[str], Any],
    ) -> None:
        self._kind = kind
        self._report = report
        self._note = note
        self._rows = 0
        self._stamp = 0

    def begin(self, how: int, lengths: Sequence[int]) -> tuple[Any, list[Row], str]:
        """A cache with prompts of these lengths; ``how`` chooses the way they are fed."""
        wanted = [length % _MOST for length in lengths]
        if self._kind.single:
            return self._begin_single(how, wanted[0])
        rows = self._new_rows(len(wanted))
        ways = [self._left, self._left, self._right, self._merged]
        if not self._kind.has("prepare"):
            ways = ways[:2]
        elif not self._kind.has("merge"):
            ways = ways[:3]
        way = how % len(ways)
        if way == 1:
            whole = how if how >= UNFED else 0
            return self._left(rows, wanted, whole, prepared=self._kind.left_in_prepare)
        return ways[way](rows, wanted, how)

    def _new_rows(self, count: int) -> list[Row]:
        self._rows += count
        return [Row(self._rows - count + index) for index in range(count)]

    def _begin_single(self, how: int, length: int) -> tuple[Any, list[Row], str]:
        text = f"new, prompt of {length} in pieces of {1 + how % 5}"
        self._note(text)
        cache, row = self.single(self._kind, length, chunk=1 + how % 5)
        return cache, [row], text

    def single(self, kind: Kind, length: int, chunk: int = 3) -> tuple[Any, Row]:
        """A single-stream cache with a prompt."""
        (row,) = self._new_rows(1)
        cache = kind.new([0])
        while length > 0:
            width = min(chunk, length)
            (row,) = self._feed(kind, cache, Feed([row], [row.following(width, self._next())]))
            length -= width
        return cache, row

    def _next(self) -> int:
        self._stamp += 1
        return self._stamp

    def _feed(self, kind: Kind, cache: Any, feed: Feed) -> list[Row]:
        facts = kind.facts(cache)
        for problem in kind.feed(cache, feed):
            self._report(at_once(problem, feed.width), facts)
        return feed.after()

    def block(self, cache: Any, rows: Sequence[Row], width: int) -> list[Row]:
        """Feed ``width`` real tokens to each row."""
        stamp = self._next()
        feed = Feed(rows, [row.following(width, stamp) for row in rows])
        return self._feed(self._kind, cache, feed)

    def _left(
        self, rows: list[Row], lengths: list[int], how: int = 0, *, prepared: bool = False
    ) -> tuple[Any, list[Row], str]:
        """Prompts padded on the left; the constructor or prepare() gets the padding."""
        width = max(lengths)
        padding = [width - length for length in lengths]
        cut = len(rows) // 2 if self._kind.has("extend") and how >= UNFED else 0
        cache = self._unfed(padding[cut:], prepared=prepared)
        if cut:
            later, cache = cache, self._unfed(padding[:cut], prepared=prepared)
            cache.extend(later)
        chunk = 1 + how // 4 % 5
        text = f"new, prompts of {lengths} padded on the left"
        text += " (prepare)" if prepared else ""
        text += f", the last {len(rows) - cut} joining unfed" if cut else ""
        text += f", in pieces of {chunk}" if how else ""
        self._note(text)
        stamp = self._next()
        tokens = [row.following(n, stamp) for row, n in zip(rows, lengths, strict=True)]
        grid = padded(tokens, stamp, left=True)
        rows = self._pieces(cache, rows, grid, chunk if how else width)
        return cache, rows, text

    def _unfed(self, padding: list[int], *, prepared: bool) -> Any:
        """An empty cache that knows its padding."""
        cache = self._kind.new([0] * len(padding) if prepared else padding)
        if prepared:
            cache.prepare(left_padding=padding)
        return cache

    def _right(self, rows: list[Row], lengths: list[int], how: int) -> tuple[Any, list[Row], str]:
        cache = self._kind.new([0] * len(rows))
        cache, rows, text = self.prefill(cache, rows, lengths, chunk=1 + how // 4 % 5)
        return cache, rows, f"new, {text or 'nothing'}"

    def _merged(self, _: list[Row], lengths: list[int], how: int) -> tuple[Any, list[Row], str]:
        """Single-stream caches, each fed its prompt, and then merged."""
        stream = self._kind.share(self._kind.partner())
        chunk = 1 + how // 4 % 5
        self._note(f"merge single streams of {lengths}")
        made = [self.single(stream, length, chunk) for length in lengths]
        cache = self._kind.merged([cache for cache, _ in made])
        return cache, [row for _, row in made], f"merge single streams of {lengths}"

    def _pieces(
        self, cache: Any, rows: list[Row], grid: list[list[Token]], chunk: int
    ) -> list[Row]:
        for start in range(0, len(grid[0]), max(1, chunk)):
            piece = [tokens[start : start + chunk] for tokens in grid]
            rows = self._feed(self._kind, cache, Feed(rows, piece))
        return rows

    def prefill(
        self,
        cache: Any,
        rows: Sequence[Row],
        lengths: Sequence[int],
        *,
        chunk: int,
        middle: int = 0,
    ) -> tuple[Any, list[Row], str | None]:
        """Call prepare(), feed ragged prompts padded on the right in pieces, call finalize()."""
        rows = list(rows)
        wanted = [lengths[index % len(lengths)] % _MOST for index in range(len(rows))]
        if not self._kind.has("prepare") or max(wanted) == 0:
            return cache, rows, None
        width = max(wanted)
        cache.prepare(lengths=wanted, right_padding=[width - length for length in wanted])
        text = f"prepare, prompts of {wanted} padded on the right in pieces of {chunk}, "
        if middle % 3 == _JOIN and self._kind.joins_while_prepared:
            other, others = self._kind.new([0, 0]), self._new_rows(2)
            theirs = [width, middle // 3 % (width + 1)]
            other.prepare(lengths=theirs, right_padding=[width - length for length in theirs])
            cache.extend(other)
            rows, wanted = [*rows, *others], [*wanted, *theirs]
            text += f"extended by rows prepared for {theirs}, "
        self._note(f"{text}finalize")
        stamp = self._next()
        tokens = [row.following(n, stamp) for row, n in zip(rows, wanted, strict=True)]
        grid = padded(tokens, stamp, left=False)
        if middle % 3 == _LEAVE and self._kind.leaves_while_prepared and len(rows) > 1:
            rows = self._pieces(cache, rows, [tokens[:chunk] for tokens in grid], chunk)
            kept = [i for i in range(len(rows)) if i != middle // 3 % len(rows)]
            cache.filter(kept)
            rows, grid = [rows[i] for i in kept], [grid[i][chunk:] for i in kept]
            text += f"filtered to slots {kept} after the first, "
        if grid[0]:
            rows = self._pieces(cache, rows, grid, chunk)
        cache.finalize()
        return cache, rows, f"{text}finalize"
