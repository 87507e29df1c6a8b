"""The first page: totals, coverage, and how far the checks can be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import jinja2

from conformance.core.invocation import Invocation
from conformance.core.verdict import CaseResult
from conformance.report.behind_known import behind_known
from conformance.report.message import new_verdict
from conformance.report.outcome import count, tallies
from conformance.report.pages import comparison_page
from conformance.report.pages.environment import Page, render_page
from conformance.report.pages.lanes import lanes
from conformance.report.pages.material import Material
from conformance.report.pages.small_matrix import COLOURS, small_matrices
from conformance.report.pages.words import MEANINGS
from conformance.report.separation import LEAST, Separation, separations
from conformance.report.trials import Outcome, Trial

HERE = "index.html"

_FINDINGS = 20  # shown one by one; the matrix has all cases
_RUNS = 12  # whose results were joined
_CLOSEST = 5  # families with the smallest separation


@dataclass(frozen=True)
class Power:
    """The outcomes of all faults in all families, in one dtype."""

    dtype: str
    killed: int
    survived: int
    hidden: int
    families: int
    closest: tuple[Separation, ...]

    @property
    def pairs(self) -> int:
        """Pairs of fault and family in which the fault took effect and nothing hid it."""
        return self.killed + self.survived

    @property
    def least(self) -> float:
        """The separation that a family should have."""
        return LEAST[self.dtype]


def render_overview(
    material: Material, environment: jinja2.Environment, *, pages: tuple[Page, ...]
) -> str:
    """The page's text."""
    results, inventory = material.results, material.inventory
    unexpected = sum(not result.expected for result in results)
    return render_page(
        environment,
        "overview.html.j2",
        here=HERE,
        pages=pages,
        headline=headline(len(results), unexpected, material.missing, len(material.problems)),
        good=not (unexpected or material.missing or material.problems),
        problems=material.problems,
        runs=runs(results),
        runs_before=runs(material.before),
        most_runs=_RUNS,
        comparison=comparison_page.HERE,
        small=small_matrices(results, inventory.scenarios),
        colours=COLOURS,
        total=len(results),
        tallies=tallies(results),
        meanings=MEANINGS,
        unexpected=unexpected,
        findings=material.cascades,
        verdict_of=new_verdict,
        most=_FINDINGS,
        lanes=lanes(results, inventory),
        accounts=inventory.accounts,
        power=power(material.trials),
        known=known(results),
        behind=behind_known(results).sentence,
        versions=versions(results),
        seconds=sum(result.seconds for result in results),
        forward_seconds=sum(result.forward_seconds for result in results),
    )


def headline(cases: int, unexpected: int, missing: int = 0, problems: int = 0) -> str:
    """The whole report in one sentence."""
    noun = "case" if cases == 1 else "cases"
    text = f"All {cases} {noun} as expected"
    if unexpected:
        text = f"{unexpected} of {cases} {noun} not as expected"
    elif missing or problems:
        text = f"{cases} {noun} as expected"
    text = f"{text}, {count(problems, 'other problem')}" if problems else text
    return f"{text}, {missing} not run" if missing else text


def power(trials: Sequence[Trial]) -> tuple[Power, ...]:
    """One for each dtype."""
    found = []
    for dtype in sorted({trial.dtype for trial in trials}, reverse=True):
        some = [trial for trial in trials if trial.dtype == dtype]
        counts = Counter(trial.outcome for trial in some)
        apart = separations(some)
        found.append(
            Power(
                dtype=dtype,
                killed=counts[Outcome.KILLED],
                survived=counts[Outcome.SURVIVED],
                hidden=counts[Outcome.HIDDEN],
                families=len(apart),
                closest=apart[:_CLOSEST],
            )
        )
    return tuple(found)


def known(results: Sequence[CaseResult]) -> list[tuple[str, int]]:
    """Each known defect and the number of cases that show it, largest first."""
    entries = (name for r in results if r.known for name in r.known.split(", "))
    return sorted(Counter(entries).items(), key=lambda item: (-item[1], item[0]))


def runs(results: Sequence[CaseResult]) -> list[tuple[Invocation | None, int]]:
    """Each run with the number of its cases, in order of time; ``None`` if it is not recorded."""
    found = Counter(result.invocation for result in results)
    known = sorted((run, count) for run, count in found.items() if run is not None)
    return [*known, *([(None, found[None])] if found[None] else [])]


def versions(results: Sequence[CaseResult]) -> list[tuple[str, list[str]]]:
    """Each package's versions, and the devices; several if the results are of several runs."""
    found: dict[str, set[str]] = {}
    for result in results:
        for name, version in {**result.versions, "device": result.device}.items():
            found.setdefault(name, set()).add(version)
    return [(name, sorted(values)) for name, values in sorted(found.items())]
