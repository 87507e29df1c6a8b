"""Plays a sequence of verbs on a cache and on plain rows, and compares after each."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from conformance.caches.checking import check
from conformance.caches.feeding import Feeding
from conformance.caches.finding import (
    HARD,
    FindingError,
    Judge,
    KnownError,
    Problem,
    Problems,
    raised_at,
    several,
)
from conformance.caches.kinds.base import Kind
from conformance.caches.rows import Row
from conformance.caches.saving import reloaded, restored


class Step(NamedTuple):
    """One verb and the numbers that it takes; a number too large is taken modulo."""

    verb: str
    numbers: tuple[int, ...] = ()


class Bench:
    """One cache, its rows, and the verbs so far."""

    def __init__(self, name: str, kind: Kind, dtype: str, *, judge: Judge, number: int = 0) -> None:
        """``number`` is that of the kind, where a class has several."""
        self.name = name
        self._played = [f"{name} {number} {dtype}"]
        self.kind = kind
        self.steps: list[str] = []
        self.verbs: Counter[str] = Counter()
        self._judge = judge
        self._verb = "new"
        self._facts: set[str] = set()
        self._before: set[str] = set()
        kind.begin(dtype)
        self._feeding = Feeding(kind, self.report, self._say)
        self._dtypes = {kind.dtype}
        self.steps.append(f"dtype {dtype}")
        self.cache: Any = None
        self.rows: list[Row] = []

    def play(self, steps: Sequence[Step]) -> None:
        """All verbs, one after the other; those that the class has not are left out.

        Raises:
            FindingError: the first difference that is not known.
        """
        try:
            for step in steps:
                self._play(step)
        except KnownError:
            pass

    def _play(self, step: Step) -> None:
        verb: Callable[..., str | None] = getattr(self, f"do_{step.verb}")
        self._verb = step.verb
        self._before = self.kind.facts(self.cache) if self.cache is not None else set()
        self.steps.append(step.verb)
        self._played.append(" ".join([step.verb, *map(str, step.numbers)]))
        fact, had = f"after {step.verb}", set(self._facts)
        self._facts.add(fact)
        try:
            said = verb(*step.numbers)
            if said is None:
                self.steps.pop()
                self._played.pop()
                self._facts = had
                return
            self.steps[-1] = said
            self.verbs[step.verb] += 1
            self._compare()
        except (FindingError, KnownError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever the library raises is the finding)
            self.report(Problem("error", f"{type(error).__name__}: {error}{raised_at(error)}"))

    def _say(self, text: str) -> str:
        """What the verb does, before it is tried: so that a failure can be read."""
        self.steps[-1] = f"extend by a batch: {text}" if self._verb == "extend" else text
        return self.steps[-1]

    def _has_content(self) -> bool:
        return self.cache is not None and self.kind.fed(self.cache)

    def _compare(self) -> None:
        for problem in check(self.kind, self.cache, self.rows, dtypes=self._dtypes):
            self.report(problem)

    def report(
        self,
        problem: Problem,
        before: frozenset[str] | set[str] = frozenset(),
        *,
        probed: bool = False,
    ) -> None:
        """Raise what is not known; end the sequence where a known defect spoilt the cache.

        Args:
            problem: the difference.
            before: what was true of the cache before it was fed.
            probed: it showed in a copy or in one row alone.
        """
        facts = self._facts | before | self._true_now(problem)
        finding = FindingError(
            self.name,
            self._verb,
            problem,
            facts=frozenset(facts),
            steps=self.steps,
            play="; ".join(self._played),
        )
        if not self._judge(finding):
            raise finding
        if problem.what in HARD and not probed:
            raise KnownError

    def _true_now(self, problem: Problem) -> set[str]:
        facts = self.kind.facts(self.cache) if self.cache is not None else set()
        told = {
            "empty": not self._has_content(),
            "ragged": len({len(row) for row in self.rows}) > 1,
            "several": several(problem),
        }
        return self._before | facts | {name for name, true in told.items() if true}

    def _all(self, problems: Problems) -> None:
        for problem in problems:
            self.report(problem)

    # The verbs. Each gives what it did in words, or None if it could do nothing.

    def do_new(self, how: int, *lengths: int) -> str | None:
        """Make a cache and feed the prompts."""
        if self.cache is not None:
            return None
        self.cache, self.rows, said = self._feeding.begin(how, lengths)
        return said

    def do_nothing(self) -> None:
        """A verb that shrinking has taken away."""

    def do_decode(self, steps: int) -> str:
        """One token for each row, some times."""
        said = self._say(f"update: one token each, {1 + steps % 4} times")
        for _ in range(1 + steps % 4):
            self.rows = self._feeding.block(self.cache, self.rows, 1)
        return said

    def do_block(self, width: int) -> str | None:
        """Some tokens for each row at once."""
        if not self.kind.blocks:
            return None
        said = self._say(f"update: {2 + width % 3} tokens each at once")
        self.rows = self._feeding.block(self.cache, self.rows, 2 + width % 3)
        return said

    def do_prefill(self, chunk: int, middle: int, *lengths: int) -> str | None:
        """Ragged prompts, padded on the right, in pieces; rows may come or go on the way."""
        self.cache, self.rows, said = self._feeding.prefill(
            self.cache, self.rows, lengths, chunk=1 + chunk % 5, middle=middle
        )
        return said

    def do_filter(self, *picks: int) -> str | None:
        """Keep some rows, in that order."""
        kept = list(dict.fromkeys(pick % len(self.rows) for pick in picks))
        if not self.kind.has("filter") or not kept or self.kind.single:
            return None
        said = self._say(f"filter: keep slots {kept}")
        self.cache.filter(mx.array(kept) if picks[0] % 2 else kept)
        self.rows = [self.rows[index] for index in kept]
        return said

    def do_extend(self, steps: int, how: int, *lengths: int) -> str | None:
        """Put the rows of another batch behind."""
        if not self.kind.has("extend") or self.kind.single or len(self.rows) > 8:
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

    def do_extract(self, index: int) -> str | None:
        """Take one row out as a single stream, which must be whole; the batch stays."""
        if not self.kind.has("extract"):
            return None
        said = self._say(f"extract slot {index % len(self.rows)}")
        self._extracted(index % len(self.rows))
        return said

    def _extracted(self, slot: int) -> Any:
        alone = self.cache.extract(slot)
        kind = self.kind if self.kind.single else self.kind.share(self.kind.stream())
        for problem in check(kind, alone, [self.rows[slot]], dtypes=self._dtypes):
            self.report(Problem(problem.what, f"the row alone: {problem.text}"), probed=True)
        return alone

    def do_merge(self, length: int) -> str | None:
        """All rows out as single streams, and with a new one back into a batch."""
        if not self.kind.has("merge") or not (self.kind.single or self.kind.has("extract")):
            return None
        said = self._say(f"extract all, merge with a single stream of {length % 9}")
        stream = self.kind if self.kind.single else self.kind.share(self.kind.stream())
        batch = self.kind.share(self.kind.batch()) if self.kind.single else self.kind
        count = len(self.rows)
        parts = [self.cache] if self.kind.single else [self._extracted(i) for i in range(count)]
        fresh, row = self._feeding.alone(stream, length % 9)
        merged, rows = self.kind.merged([*parts, fresh]), [*self.rows, row]
        if not self.kind.single:
            self.cache, self.rows = merged, rows
            return said
        self._all(check(batch, merged, rows, dtypes=self._dtypes))
        if not batch.fed(merged):
            return said
        alone = merged.extract(0)
        self.cache = alone if type(alone) is type(self.cache) else self.cache
        return f"{said}, extract slot 0"

    def do_trim(self, count: int) -> str | None:
        """Take back the last tokens of all rows, where the cache says it can."""
        most = min(len(row) for row in self.rows)
        count = 1 + count % 3
        if not self.kind.has("trim") or count > most or not self.cache.is_trimmable():
            return None
        said = self._say(f"trim {count}")
        done = self.cache.trim(count)
        if done != count:
            self.report(Problem("returned", f"trim({count}) says {done}"))
        self.rows = [Row(row.uid, row.tokens[:-count]) for row in self.rows]
        return said

    def do_copy(self) -> str:
        """A copy goes on by itself; the original must not notice."""
        said = self._say("copy, one token each for the copy")
        twin = copy.deepcopy(self.cache)
        self._feeding.block(twin, self.rows, 1)
        return said

    def do_reload(self) -> str | None:
        """Save the state, make a new cache from it."""
        said = self._say("from_state of its state")
        self.cache = reloaded(self.cache)
        return said

    def do_restore(self) -> str | None:
        """Save the state, put it into an empty cache."""
        said = self._say("state put into an empty cache")
        self.cache = restored(self.cache, self.kind.new([0] * len(self.rows)))
        return said
