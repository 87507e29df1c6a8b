"""The verbs of a cache as they are tried: on the cache, and on the plain rows beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from conformance.tools.caches.checking import check
from conformance.tools.caches.feeding import Feeding
from conformance.tools.caches.finding import Problem, Problems
from conformance.tools.caches.kinds.base import Kind
from conformance.tools.caches.rows import Row
from conformance.tools.caches.saving import reloaded, restored

Report = Callable[..., None]


class Verbs:
    """One cache and its rows. Each verb gives what it did in words, or None if nothing.

    Attributes:
        cache: under test; ``None`` before ``new``.
        rows: what it must hold.
        dtypes: those of all contents so far.
    """

    def __init__(self, kind: Kind, report: Report, say: Callable[[str], str]) -> None:
        """``report`` takes what is wrong, ``say`` what a verb does before it is tried."""
        self._kind = kind
        self._report = report
        self._say = say
        self._feeding = Feeding(kind, report, say)
        self.cache: Any = None
        self.rows: list[Row] = []
        self.dtypes = {kind.dtype}

    @property
    def has_content(self) -> bool:
        """Whether there is a cache that was fed."""
        return self.cache is not None and self._kind.fed(self.cache)

    def compare(self) -> Problems:
        """What the cache does not hold, mask or count as its rows do."""
        return check(self._kind, self.cache, self.rows, dtypes=self.dtypes)

    def new(self, how: int, *lengths: int) -> str | None:
        """Make a cache and feed the prompts."""
        if self.cache is not None:
            return None
        self.cache, self.rows, said = self._feeding.begin(how, lengths)
        return said

    def nothing(self) -> None:
        """A verb that shrinking has taken away."""

    def decode(self, steps: int) -> str:
        """One token for each row, some times."""
        said = self._say(f"update: one token each, {1 + steps % 4} times")
        for _ in range(1 + steps % 4):
            self.rows = self._feeding.block(self.cache, self.rows, 1)
        return said

    def block(self, width: int) -> str | None:
        """Some tokens for each row at once."""
        if not self._kind.blocks:
            return None
        said = self._say(f"update: {2 + width % 3} tokens each at once")
        self.rows = self._feeding.block(self.cache, self.rows, 2 + width % 3)
        return said

    def prefill(self, chunk: int, middle: int, *lengths: int) -> str | None:
        """Ragged prompts, padded on the right, in pieces; rows may come or go on the way."""
        self.cache, self.rows, said = self._feeding.prefill(
            self.cache, self.rows, lengths, chunk=1 + chunk % 5, middle=middle
        )
        return said

    def filter(self, *picks: int) -> str | None:
        """Keep some rows, in that order."""
        kept = list(dict.fromkeys(pick % len(self.rows) for pick in picks))
        if not self._kind.has("filter") or not kept or self._kind.single:
            return None
        said = self._say(f"filter: keep slots {kept}")
        self.cache.filter(mx.array(kept) if picks[0] % 2 else kept)
        self.rows = [self.rows[index] for index in kept]
        return said

    def extend(self, steps: int, how: int, *lengths: int) -> str | None:
        """Put the rows of another batch behind."""
        if not self._kind.has("extend") or self._kind.single or len(self.rows) > 8:
            return None
        other, rows, said = self._feeding.begin(how, lengths)
        if any(row.tokens for row in rows):
            for _ in range(steps % 3):
                rows = self._feeding.block(other, rows, 1)
            said += f"; then {steps % 3} tokens each"
        said = self._say(said)
        self.cache.extend(other)
        self.rows = [*self.rows, *rows]
        return said

    def extract(self, index: int) -> str | None:
        """Take one row out as a single stream, which must be whole; the batch stays."""
        if not self._kind.has("extract"):
            return None
        said = self._say(f"extract slot {index % len(self.rows)}")
        self._extracted(index % len(self.rows))
        return said

    def _extracted(self, slot: int) -> Any:
        alone = self.cache.extract(slot)
        kind = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        for problem in check(kind, alone, [self.rows[slot]], dtypes=self.dtypes):
            self._report(Problem(problem.what, f"the row alone: {problem.text}"), probed=True)
        return alone

    def merge(self, length: int) -> str | None:
        """All rows out as single streams, and with a new one back into a batch."""
        if not self._kind.has("merge") or not (self._kind.single or self._kind.has("extract")):
            return None
        said = self._say(f"extract all, merge with a single stream of {length % 9}")
        stream = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        batch = self._kind.share(self._kind.partner()) if self._kind.single else self._kind
        count = len(self.rows)
        parts = [self.cache] if self._kind.single else [self._extracted(i) for i in range(count)]
        fresh, row = self._feeding.alone(stream, length % 9)
        merged, rows = self._kind.merged([*parts, fresh]), [*self.rows, row]
        if not self._kind.single:
            self.cache, self.rows = merged, rows
            return said
        for problem in check(batch, merged, rows, dtypes=self.dtypes):
            self._report(problem)
        if not batch.fed(merged):
            return said
        alone = merged.extract(0)
        self.cache = alone if type(alone) is type(self.cache) else self.cache
        return f"{said}, extract slot 0"

    def trim(self, count: int) -> str | None:
        """Take back the last tokens of all rows, where the cache says it can."""
        most = min(len(row) for row in self.rows)
        count = 1 + count % 3
        if not self._kind.has("trim") or count > most or not self.cache.is_trimmable():
            return None
        said = self._say(f"trim {count}")
        done = self.cache.trim(count)
        if done != count:
            self._report(Problem("returned", f"trim({count}) says {done}"))
        self.rows = [Row(row.uid, row.tokens[:-count]) for row in self.rows]
        return said

    def copy(self) -> str:
        """A copy goes on by itself; the original must not notice."""
        said = self._say("copy, one token each for the copy")
        twin = copy.deepcopy(self.cache)
        self._feeding.block(twin, self.rows, 1)
        return said

    def reload(self) -> str | None:
        """Save the state, make a new cache from it."""
        said = self._say("from_state of its state")
        self.cache = reloaded(self.cache)
        return said

    def restore(self) -> str | None:
        """Save the state, put it into an empty cache."""
        said = self._say("state put into an empty cache")
        self.cache = restored(self.cache, self._kind.new([0] * len(self.rows)))
        return said
