"""Runs a sequence of verbs on a cache and on plain rows, and compares them after each verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from conformance.power.caches.finding import (
    HARD,
    FindingError,
    Judge,
    KnownError,
    Problem,
    raised_at,
    several,
)
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.verbs import Verbs


class Step(NamedTuple):
    """One verb and its numbers; a number that is too large is taken modulo."""

    verb: str
    numbers: tuple[int, ...] = ()


class Harness:
    """One cache, its rows, and the verbs so far."""

    def __init__(self, name: str, kind: Kind, dtype: str, *, judge: Judge, number: int = 0) -> None:
        """``number`` is the index of the kind if the class has several."""
        self.name = name
        self._played = [f"{name} {number} {dtype}"]
        self.kind = kind
        self.steps: list[str] = []
        self.verbs: Counter[str] = Counter()
        self._judge = judge
        self._verb = "new"
        self._facts: set[str] = set()
        self._before: set[str] = set()
        self._comparing = False
        kind.begin(dtype)
        self._state = Verbs(kind, self.report, self._note)
        self.steps.append(f"dtype {dtype}")

    def play(self, steps: Sequence[Step]) -> None:
        """Run all verbs in order; verbs that the class lacks are skipped.

        Raises:
            FindingError: the first difference that no known defect explains.
        """
        try:
            for step in steps:
                self._play(step)
        except KnownError:
            pass

    def _play(self, step: Step) -> None:
        verb: Callable[..., str | None] = getattr(self._state, step.verb)
        self._verb = step.verb
        self._before = self._cache_facts()
        self._comparing = False
        self.steps.append(step.verb)
        self._played.append(" ".join([step.verb, *map(str, step.numbers)]))
        fact, had = f"after {step.verb}", set(self._facts)
        self._facts.add(fact)
        try:
            text = verb(*step.numbers)
            if text is None:
                self.steps.pop()
                self._played.pop()
                self._facts = had
                return
            self.steps[-1] = text
            self.verbs[step.verb] += 1
            self._compare()
        except (FindingError, KnownError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever the library raises is the finding)
            self.report(Problem("error", f"{type(error).__name__}: {error}{raised_at(error)}"))

    def _note(self, text: str) -> str:
        """Record the verb's text before the verb runs, so that failures are readable."""
        self.steps[-1] = f"extend by a batch: {text}" if self._verb == "extend" else text
        return self.steps[-1]

    def _compare(self) -> None:
        self._comparing = True
        for problem in self._state.compare():
            self.report(problem)

    def _cache_facts(self) -> set[str]:
        cache = self._state.cache
        return self.kind.facts(cache) if cache is not None else set()

    def report(
        self,
        problem: Problem,
        before: frozenset[str] | set[str] = frozenset(),
        *,
        probed: bool = False,
    ) -> None:
        """Raise an unknown difference; end the sequence if a known defect corrupted the cache.

        Args:
            problem: the difference.
            before: facts about the cache before it was fed.
            probed: whether it was found in a copy or an extracted row.
        """
        facts = self._facts | before | self._facts_now(problem)
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

    def _facts_now(self, problem: Problem) -> set[str]:
        flags = {
            "empty": not self._state.has_content,
            "ragged": len({len(row) for row in self._state.rows}) > 1,
            "several": several(problem),
            "in the verb": not self._comparing,
        }
        return self._before | self._cache_facts() | {name for name, true in flags.items() if true}
