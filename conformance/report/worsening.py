"""Cases of a run that are worse than in an earlier run, whatever is expected of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from conformance.core.grouping import BeforeAfter, compared
from conformance.core.verdict import CaseId, CaseResult, Verdict
from conformance.report.comparison import by_case, rank
from conformance.report.jsonl import read_results
from conformance.report.moved import less_covered, moved
from conformance.report.outcome import Outcome, count


@dataclass(frozen=True)
class Base:
    """An earlier run: its name, and its results by case."""

    name: str
    results: Mapping[str, CaseResult]

    @classmethod
    def read(cls, path: Path) -> Base:
        """The run of a result file.

        Raises:
            ResultError: it can't be read, has no results, or has a case twice.
        """
        return cls(path.name, by_case(read_results(path), "--against"))

    def judged(self, result: CaseResult) -> CaseResult:
        """``result``, marked as expected unless it is worse than before."""
        return msgspec.structs.replace(result, expected=not self.worse(result))

    def worse(self, result: CaseResult) -> bool:
        """Whether the case, or one of its schedules, has a worse verdict than before.

        A case that was not run before is worse if it is not expected. A newly refused case is lost
        coverage instead. If a known defect showed before and shows now, an entry allows both
        verdicts.
        """
        before = self.results.get(result.case)
        if before is None:
            return not result.expected
        if result.verdict.good or (result.verdict is Verdict.UNSUPPORTED and result.expected):
            return False
        if before.known and result.known and before.expected and result.expected:
            return False
        return rank(result) > rank(before) or _a_schedule_is_worse(before, result)

    def lost(self, outcome: Outcome, selected: Callable[[CaseId], bool]) -> tuple[str, ...]:
        """Cases that were right and are now not run, or refused.

        Args:
            selected: whether a case of the earlier run belongs to this one.
        """
        refused = {
            name
            for name, (_, now) in self._compared(outcome).both.items()
            if now.verdict is Verdict.UNSUPPORTED
        }
        gone = {*self._compared(outcome).went, *refused}
        return tuple(
            name
            for name, before in self.results.items()
            if before.verdict.good and name in gone and selected(CaseId.parse(name))
        )

    def _compared(self, outcome: Outcome) -> BeforeAfter[str, CaseResult]:
        return compared(self.results, {result.case: result for result in outcome.results})

    def seen(self, outcome: Outcome, selected: Callable[[CaseId], bool]) -> Outcome:
        """The outcome with each result judged by the earlier run; other problems become notes.

        Lost coverage is a problem, unless the run was interrupted.
        """
        lost = () if outcome.missing else self._lost(outcome, selected)
        return replace(
            outcome,
            results=tuple(map(self.judged, outcome.results)),
            problems=lost,
            notes=outcome.notes + outcome.problems + self._moved(outcome),
            against=self.name,
        )

    def _lost(self, outcome: Outcome, selected: Callable[[CaseId], bool]) -> tuple[str, ...]:
        """A sentence for each kind of lost coverage: cases, and parts of cases."""
        whole = [(name, "") for name in self.lost(outcome, selected)]
        pairs = self._compared(outcome).both.values()
        inside = [(new.case, f" ({t})") for old, new in pairs if (t := less_covered(old, new))]
        return tuple(
            f"lost coverage: {count(len(found), 'case')} {what}: {found[0][0]}{found[0][1]}"
            + (" and others" if len(found) > 1 else "")
            for found, what in (
                (whole, f"right in {self.name} and not played now"),
                (inside, f"proving less than in {self.name}"),
            )
            if found
        )

    def _moved(self, outcome: Outcome) -> tuple[str, ...]:
        """A sentence about known defects that show differently than before, if any do."""
        pairs = self._compared(outcome).both.values()
        found = [(new.case, text) for old, new in pairs if (text := moved(old, new))]
        if not found:
            return ()
        (case, text), more = found[0], " and others" if len(found) > 1 else ""
        shows = "known defects show" if len(found) > 1 else "a known defect shows"
        cases = count(len(found), "case")
        return (f"{shows} otherwise than in {self.name} in {cases}: {case} ({text}){more}",)


def _a_schedule_is_worse(before: CaseResult, result: CaseResult) -> bool:
    """Whether a schedule is worse; if the case failed as a whole before, none is known to be."""
    found = compared({s.name: s for s in before.schedules}, {s.name: s for s in result.schedules})
    return any(
        rank(now) > rank(old)
        for old, now in found.both.values()
        if not (result.expected and now.verdict is Verdict.UNSUPPORTED)
    )
