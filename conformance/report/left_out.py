"""Selected cases that a run leaves out: nothing changed, or they did not fail the last time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from conformance.core.verdict import CaseResult
from conformance.report.outcome import count, listed, tallies

_NAMED = 3


@dataclass(frozen=True)
class LeftOut:
    """What a run leaves out, and what is known of it.

    Attributes:
        last: the last known result of each of the cases, by id; ``None`` where there is none.
        failed: those that were not as expected when they were last played.
    """

    last: Mapping[str, CaseResult | None] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @classmethod
    def of(cls, last: Mapping[str, CaseResult | None], failures: Iterable[str]) -> LeftOut:
        """With the ids of all cases that failed the last time, whose results may not be kept."""
        remembered = set(failures)
        failed = (
            name
            for name, result in last.items()
            if (name in remembered if result is None else not result.expected)
        )
        return cls(last, tuple(sorted(failed)))

    def judged(self, judge: Callable[[CaseResult], CaseResult]) -> LeftOut:
        """The same, with another rule for what is expected."""
        last = {name: judge(found) if found else None for name, found in self.last.items()}
        unknown = {name for name in self.failed if last[name] is None}
        return LeftOut.of(last, unknown)

    @property
    def unknown(self) -> int:
        """Of how many no result is known."""
        return sum(result is None for result in self.last.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not run, with what is known of it."""
        if not self.last:
            return ()
        found = [f"{t.verdict} {t.cases}" for t in tallies(filter(None, self.last.values()))]
        found += [f"none is known of {self.unknown}"] if self.unknown else []
        return (f"not run: {count(len(self.last), 'case')}; last results: {', '.join(found)}",)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was not run, and was not as expected when it was."""
        if not self.failed:
            return ()
        shown = [self._shown(name) for name in self.failed]
        cases = count(len(self.failed), "case")
        return (f"not run, and not as expected the last time: {cases}: {listed(shown, _NAMED)}",)

    def _shown(self, name: str) -> str:
        result = self.last[name]
        return name if result is None else f"{name} ({result.verdict})"
