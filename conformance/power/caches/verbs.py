"""The verbs of a cache, each run on the cache and on its rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from conformance.power.caches.feeding import Feeding
from conformance.power.caches.finding import Problem, Problems
from conformance.power.caches.invariants import check
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.rows import Row
from conformance.power.caches.saving import (
    keeps,
    kept,
    put_together,
    reloaded,
    restored,
    through_file,
)

Report = Callable[..., None]


class Verbs:
    """One cache and its rows. Each verb returns a text of its action, ``None`` if it did nothing.

    Attributes:
        cache: the cache under test; ``None`` before ``new``.
        rows: the tokens that the cache must hold.
        dtypes: the dtypes of all contents so far.
    """

    def __init__(self, kind: Kind, report: Report, note: Callable[[str], str]) -> None:
        """``report`` gets problems, and ``note`` a verb's text before the verb runs."""
        self._kind = kind
        self._report = report
        self._note = note
        self._feeding = Feeding(kind, report, note)
        self.cache: Any = None
        self.rows: list[Row] = []
        self.dtypes = {kind.dtype}

    @property
    def has_content(self) -> bool:
        """Whether there is a cache that was fed."""
        return self.cache is not None and self._kind.fed(self.cache)

    def compare(self) -> Problems:
        """The differences between the cache and its rows."""
        return check(self._kind, self.cache, self.rows, dtypes=self.dtypes)

    def new(self, how: int, *lengths: int) -> str | None:
        """Make a cache and feed the prompts."""
        if self.cache is not None:
            return None
        self.cache, self.rows, text = self._feeding.begin(how, lengths)
        return text

    def nothing(self) -> None:
        """Do nothing; shrinking replaces verbs with this one."""

    def decode(self, steps: int) -> str:
        """Feed one token to each row, a few times."""
        text = self._note(f"update: one token each, {1 + steps % 4} times")
        for _ in range(1 + steps % 4):
            self.rows = self._feeding.block(self.cache, self.rows, 1)
        return text

    def block(self, width: int) -> str | None:
        """Feed several tokens to each row at once."""
        if not self._kind.blocks:
            return None
        text = self._note(f"update: {2 + width % 3} tokens each at once")
        self.rows = self._feeding.block(self.cache, self.rows, 2 + width % 3)
        return text

    def prefill(self, chunk: int, middle: int, *lengths: int) -> str | None:
        """Ragged prompts, padded on the right, in pieces; rows may join or leave in between."""
        self.cache, self.rows, text = self._feeding.prefill(
            self.cache, self.rows, lengths, chunk=1 + chunk % 5, middle=middle
        )
        return text

    def filter(self, *picks: int) -> str | None:
        """Keep some rows, in the order of ``picks``."""
        kept = list(dict.fromkeys(pick % len(self.rows) for pick in picks))
        if not self._kind.has("filter") or not kept or self._kind.single:
            return None
        text = self._note(f"filter: keep slots {kept}")
        self.cache.filter(mx.array(kept) if picks[0] % 2 else kept)
        self.rows = [self.rows[index] for index in kept]
        return text

    def extend(self, steps: int, how: int, *lengths: int) -> str | None:
        """Append the rows of another batch."""
        if not self._kind.has("extend") or self._kind.single or len(self.rows) > 8:
            return None
        other, rows, text = self._feeding.begin(how, lengths)
        if any(row.tokens for row in rows):
            for _ in range(steps % 3):
                rows = self._feeding.block(other, rows, 1)
            text += f"; then {steps % 3} tokens each"
        text = self._note(text)
        self.cache.extend(other)
        self.rows = [*self.rows, *rows]
        return text

    def extract(self, index: int) -> str | None:
        """Extract one row and check it; the batch does not change."""
        if not self._kind.has("extract"):
            return None
        text = self._note(f"extract slot {index % len(self.rows)}")
        self._extracted(index % len(self.rows))
        return text

    def _extracted(self, slot: int) -> Any:
        single = self.cache.extract(slot)
        kind = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        for problem in check(kind, single, [self.rows[slot]], dtypes=self.dtypes):
            self._report(Problem(problem.what, f"the row alone: {problem.text}"), probed=True)
        return single

    def merge(self, length: int) -> str | None:
        """Extract all rows and merge them with a new single stream into a batch."""
        if not self._kind.has("merge") or not (self._kind.single or self._kind.has("extract")):
            return None
        text = self._note(f"extract all, merge with a single stream of {length % 9}")
        stream = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        batch = self._kind.share(self._kind.partner()) if self._kind.single else self._kind
        count = len(self.rows)
        parts = [self.cache] if self._kind.single else [self._extracted(i) for i in range(count)]
        fresh, row = self._feeding.single(stream, length % 9)
        merged, rows = self._kind.merged([*parts, fresh]), [*self.rows, row]
        if not self._kind.single:
            self.cache, self.rows = merged, rows
            return text
        for problem in check(batch, merged, rows, dtypes=self.dtypes):
            self._report(problem)
        if not batch.fed(merged):
            return text
        single = merged.extract(0)
        self.cache = single if type(single) is type(self.cache) else self.cache
        return f"{text}, extract slot 0"

    def keep(self, room: int, file: int = 0) -> str | None:
        """Keep each row like prefix caching, and build a batch from the kept rows.

        Args:
            room: room for this many more tokens.
            file: if odd, kept rows are written to a file and read again.
        """
        if not keeps(self.cache) or not (self._kind.single or self._kind.has("extract")):
            return None
        where = " in a file" if file % 2 else ""
        text = self._note(f"each row kept{where}, with room for {room % 9} more, and put together")
        stream = self._kind if self._kind.single else self._kind.share(self._kind.partner())
        count = len(self.rows)
        # A batch with this method is kept unchanged if it has one row, and else not at all.
        asked = self._kind.has("is_single_row") and not self._kind.single
        if asked and count > 1 and kept(self.cache, None) is not None:
            self._report(Problem("returned", f"{count} rows are kept as one"))
        whole = self._kind.single or (asked and count == 1)
        parts = [self.cache] if whole else [self._extracted(i) for i in range(count)]
        capacities = [len(row) + room % 9 if room % 9 else None for row in self.rows]
        copies = [kept(part, most) for part, most in zip(parts, capacities, strict=True)]
        if any(copy is None for copy in copies):
            return None
        if file % 2 and all(row.tokens for row in self.rows):
            copies = [
                through_file(copied, len(row), most)
                for copied, row, most in zip(copies, self.rows, capacities, strict=True)
            ]
            if any(copy is None for copy in copies):
                return None
        # For a row without tokens, a model's own empty cache may be kept.
        cold = [
            not row.tokens and type(copied) is not stream.cls and copied.empty()
            for copied, row in zip(copies, self.rows, strict=True)
        ]
        for copied, row, none in zip(copies, self.rows, cold, strict=True):
            if none:
                continue
            for problem in check(stream, copied, [row], dtypes=self.dtypes):
                self._report(Problem(problem.what, f"the row as kept: {problem.text}"))
        if self._kind.single:
            self.cache = copies[0]
            return text
        merged = put_together(copies, [len(row) for row in self.rows])
        self.cache = self.cache if merged is None or all(cold) else merged
        return text

    def trim(self, count: int) -> str | None:
        """Trim the last tokens of all rows, if the cache can."""
        most = min(len(row) for row in self.rows)
        count = 1 + count % 3
        if not self._kind.has("trim") or count > most or not self.cache.is_trimmable():
            return None
        text = self._note(f"trim {count}")
        done = self.cache.trim(count)
        if done != count:
            self._report(Problem("returned", f"trim({count}) says {done}"))
        self.rows = [Row(row.uid, row.tokens[:-count]) for row in self.rows]
        return text

    def copy(self) -> str:
        """Feed a copy; the original must not change."""
        text = self._note("copy, one token each for the copy")
        twin = copy.deepcopy(self.cache)
        self._feeding.block(twin, self.rows, 1)
        return text

    def reload(self) -> str | None:
        """Make a new cache from the state."""
        text = self._note("from_state of its state")
        self.cache = reloaded(self.cache)
        return text

    def restore(self) -> str | None:
        """Set the state of an empty cache."""
        text = self._note("state put into an empty cache")
        self.cache = restored(self.cache, self._kind.new([0] * len(self.rows)))
        return text
