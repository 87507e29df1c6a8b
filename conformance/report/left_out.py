"""Selected cases that a run leaves out: unchanged, or right in their last run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from conformance.core.verdict import CaseResult
from conformance.report.outcome import count, listed, tallies

_NAMED = 3


@dataclass(frozen=True)
class LeftOut:
    """The cases that a run leaves out, and their known results.

    Attributes:
        last: the last known result of each of the cases, by id; ``None`` if there is none.
        failed: the cases that were not as expected in their last run.
    """

    last: Mapping[str, CaseResult | None] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @classmethod
    def of(cls, last: Mapping[str, CaseResult | None], failures: Iterable[str]) -> LeftOut:
        """Add the ids of all cases that failed in their last run; they may have no result."""
        remembered = set(failures)
        failed = (
            name
            for name, result in last.items()
            if (name in remembered if result is None else not result.expected)
        )
        return cls(last, tuple(sorted(failed)))

    def judged(self, judge: Callable[[CaseResult], CaseResult]) -> LeftOut:
        """The same, with another rule for expected results."""
        last = {name: judge(found) if found else None for name, found in self.last.items()}
        unknown = {name for name in self.failed if last[name] is None}
        return LeftOut.of(last, unknown)

    @property
    def unknown(self) -> int:
        """The number of cases without a known result."""
        return sum(result is None for result in self.last.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """The cases that were not run, and what is known of them."""
        if not self.last:
            return ()
        found = [f"{t.verdict} {t.cases}" for t in tallies(filter(None, self.last.values()))]
        found += [f"none is known of {self.unknown}"] if self.unknown else []
        return (f"not run: {count(len(self.last), 'case')}; last results: {', '.join(found)}",)

    @property
    def problems(self) -> tuple[str, ...]:
        """The cases that were not run and were not as expected in their last run."""
        if not self.failed:
            return ()
        shown = [self._shown(name) for name in self.failed]
        cases = count(len(self.failed), "case")
        return (f"not run, and not as expected the last time: {cases}: {listed(shown, _NAMED)}",)

    def _shown(self, name: str) -> str:
        result = self.last[name]
        return name if result is None else f"{name} ({result.verdict})"
