"""The outcome of a whole run."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.core.missing_library import lacking, remedied
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.cascades import Cascade, cascades
from conformance.report.explanation import Explanation
from conformance.report.message import new_verdict


@dataclass(frozen=True)
class Outcome:
    """A completed run.

    Attributes:
        results: results of all cases that were run.
        scenarios: all scenario names in the order of the ladder.
        problems: sentences about problems outside of cases: uncovered modules, stale expectations.
        missing: number of selected cases that were not run (``-x``, an interruption).
        seconds: wall time.
        interrupted: somebody stopped the run; the missing cases are no failure of their own.
        unchanged: number of selected cases that were left out (``report/left_out.py``).
        explanations: explanations of failing cases, by case id, as far as there are any.
        notes: sentences that fail nothing.
        against: the earlier run that decides what is expected; empty if none does.
    """

    results: tuple[CaseResult, ...]
    scenarios: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    missing: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    unchanged: int = 0
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    against: str = ""

    @property
    def reused(self) -> int:
        """The number of results from earlier runs."""
        return sum(result.reused for result in self.results)

    @functools.cached_property
    def cascades(self) -> tuple[Cascade, ...]:
        """The unexpected cases by their causes, the most important first."""
        return cascades(self.results, self.scenarios, self.explanations)

    @property
    def unexpected(self) -> tuple[CaseResult, ...]:
        """Results with an unexpected verdict, by case id."""
        return tuple(sorted((r for r in self.results if not r.expected), key=lambda r: r.case))

    @property
    def ok(self) -> bool:
        """Whether all cases were run and are as expected."""
        return not (self.unexpected or self.problems or self.missing)


@dataclass(frozen=True)
class Tally:
    """The number of cases with a verdict, and how many of them are ``unexpected``."""

    verdict: Verdict
    cases: int
    unexpected: int


def tallies(results: Iterable[CaseResult]) -> tuple[Tally, ...]:
    """Totals by verdict, from best to worst; verdicts without a case are left out.

    An unexpected case counts by what is new.
    """
    found = tuple(results)
    return tuple(
        Tally(verdict, len(of_it), sum(not result.expected for result in of_it))
        for verdict in Verdict
        if (of_it := [result for result in found if new_verdict(result) is verdict])
    )


def slowest(results: Iterable[CaseResult], count: int) -> tuple[CaseResult, ...]:
    """The ``count`` cases that took the longest, the slowest first."""
    return tuple(sorted(results, key=lambda result: -result.seconds)[:count])


def duration(seconds: float) -> str:
    """``seconds`` as text: ``0.42 s``, ``12 s``, ``5 min 07 s``, ``1 h 02 min``."""
    if seconds < 9.95:
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: int, noun: str) -> str:
    """``1 family``, ``2 families``, ``0 cases``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def listed(names: Sequence[str], most: int) -> str:
    """The first ``most`` names, and how many are left out."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


# Problems of this machine: missing system libraries, and cases that its device refused once ------

_MOST = 5

MACHINE = "machine"
"""The check name of the finding that a device refused a case at first."""


def about_machine(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """A sentence about each of the two problems."""
    found = tuple(results)
    return (*not_playable(found), *problems_of_machine(found))


def not_playable(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """A sentence for each missing file: the families that need it, and what to install."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        if file := lacking(result.verdict, result.evidence):
            found.setdefault(file, {})[f"{result.engine}/{result.family}"] = None
    return tuple(
        f"not playable here: {listed(list(families), _MOST)}: {remedied(file)}"
        for file, families in found.items()
    )


def problems_of_machine(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """A sentence about cases that a device or its compiler refused, but not when run alone."""
    found = {
        result.case: finding
        for result in results
        for finding in result.evidence
        if finding.check == MACHINE
    }
    if not found:
        return ()
    names, first = list(found), next(iter(found.values()))
    what = f"{first.what}; what it gave alone counts"
    return (f"a problem of this machine: {listed(names, _MOST)}: {what}",)
