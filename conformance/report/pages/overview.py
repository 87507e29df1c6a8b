"""The first page: totals, coverage, and how far the checks can be trusted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.core.grouping import grouped
from conformance.core.inventory import Inventory
from conformance.core.invocation import Invocation
from conformance.core.known_defect import TOP
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.comparison import versions_of
from conformance.report.left_out import behind_known
from conformance.report.matrix import Cell, Matrix, Row, matrices
from conformance.report.message import new_verdict
from conformance.report.outcome import count, tallies
from conformance.report.pages import comparison_page
from conformance.report.pages.environment import DEFECTS, MEANINGS, Renderer
from conformance.report.pages.material import Material
from conformance.report.trials import LEAST, Outcome, Separation, Trial, separations

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


def render_overview(material: Material, renderer: Renderer) -> str:
    """The page's text."""
    results, inventory = material.results, material.inventory
    unexpected = sum(not result.expected for result in results)
    return renderer.page(
        "overview.html.j2",
        HERE,
        headline=headline(len(results), unexpected, material.missing, len(material.problems)),
        good=not (unexpected or material.missing or material.problems),
        problems=material.problems,
        runs=runs(results),
        runs_before=runs(material.before),
        most_runs=_RUNS,
        comparison=comparison_page.HERE,
        shown=shown_matrices(results, inventory.scenarios),
        engines=sorted({result.engine for result in results}),
        share=share(results, material.missing),
        colours=COLOURS,
        colour=colour,
        verdicts=[verdict for verdict in Verdict if verdict in {r.verdict for r in results}],
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
        defects=material.defects_shown,
        defects_page=DEFECTS,
        top=TOP,
        behind=behind_known(results).sentence,
        versions=list(versions_of(results).items()),
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


def share(results: Sequence[CaseResult], missing: int = 0) -> str:
    """How much of what was selected was run, and is right as released, in one sentence."""
    selected = len(results) + missing
    right = sum(result.right_as_released for result in results)
    part = f"{right} of {selected} selected {'case' if selected == 1 else 'cases'}"
    run = f"; {missing} of them {'was' if missing == 1 else 'were'} not run" if missing else ""
    return f"{part} ({100 * right / selected:.1f} %) exact or tie as released{run}"


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


# Counts for each engine and dtype: how many cases exist, were run, and are proven ----------------

_UNDECIDED = (Verdict.UNSUPPORTED, Verdict.POLICY, Verdict.VACUOUS)


@dataclass(frozen=True)
class Lane:
    """One engine in one dtype with one seed, in counts.

    Every case that applies is in the denominator, whether it was run or not: ``proven``, ``wrong``
    and ``undecided`` add up to ``run``; ``run`` and ``missing`` add up to all cases. Counts that
    are unknown because an engine is not installed are ``None``.

    proven: exact or tie.
    wrong: cases with an error.
    known: wrong cases with an entry in the expectations.
    undecided: unsupported, policy or vacuous: neither right nor wrong.
    unexpected: cases with an unexpected verdict.
    """

    engine: str
    dtype: str
    seed: int
    families_run: int
    families: int | None
    run: int
    proven: int
    wrong: int
    known: int
    undecided: int
    unexpected: int
    missing: int | None

    @property
    def applicable(self) -> int | None:
        """The number of cases that exist."""
        return None if self.missing is None else self.run + self.missing

    @property
    def share(self) -> float | None:
        """The proven share of all cases that exist."""
        return self.proven / self.applicable if self.applicable else None


def lanes(results: Sequence[CaseResult], inventory: Inventory) -> tuple[Lane, ...]:
    """One for each engine, dtype and seed, in the order of their first result."""
    groups = grouped(results, lambda result: (result.engine, result.dtype, result.seed))
    return tuple(_lane(*key, group, inventory) for key, group in groups.items())


def _lane(
    engine: str, dtype: str, seed: int, group: list[CaseResult], inventory: Inventory
) -> Lane:
    applicable = inventory.applicable.get(engine)
    run = {(result.family, result.scenario) for result in group}
    wrong = [r for r in group if not r.verdict.good and r.verdict not in _UNDECIDED]
    missing = None
    if applicable is not None:
        there = {(family, name) for family, names in applicable.items() for name in names}
        missing = len(there - run)
    return Lane(
        engine=engine,
        dtype=dtype,
        seed=seed,
        families_run=len({family for family, _ in run}),
        families=None if applicable is None else len(applicable),
        run=len(group),
        proven=sum(result.right_as_released for result in group),
        wrong=len(wrong),
        known=sum(result.known is not None for result in wrong),
        undecided=sum(result.verdict in _UNDECIDED for result in group),
        unexpected=sum(not result.expected for result in group),
        missing=missing,
    )


# A matrix on the first page: whole if it has few families, else a small picture of it, in which a
# column is a family, a row a scenario ------------------------------------------------------------

_LABELLED = 30  # families of a matrix that has all names

COLOURS: Mapping[str, str] = {
    "good": "exact",
    "tie": "tie",
    "none": "unsupported or a policy",
    "mended": "known defect, right once mended",
    "known": "known defect",
    "bad": "not expected",
}
"""The colours of cells, by style-sheet class, and their meanings."""


@dataclass(frozen=True)
class Family:
    """A column that links to the family's row of the matrix and counts its cells by colour."""

    name: str
    text: str


@dataclass(frozen=True)
class SmallMatrix:
    """One engine and dtype.

    Attributes:
        strokes: for each colour, the path of its cells, one unit wide and high.
        counts: the number of cells of each colour.
    """

    engine: str
    dtype: str
    families: tuple[Family, ...]
    scenarios: tuple[str, ...]
    strokes: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, int], ...]


def shown_matrices(
    results: Sequence[CaseResult], scenarios: Sequence[str]
) -> tuple[Matrix | SmallMatrix, ...]:
    """One for each engine and dtype; ``scenarios`` are all, in the order of the ladder."""
    found = matrices(results, scenarios)
    return tuple(one if len(one.rows) <= _LABELLED else small_matrix(one) for one in found)


def colour(cell: Cell) -> str:
    """The colour of a cell, one of ``COLOURS``: as in the large matrix."""
    if not cell.expected:
        return "bad"
    if cell.verdict in (Verdict.UNSUPPORTED, Verdict.POLICY):
        return "none"
    if cell.mended:
        return "mended"
    return {Verdict.EXACT: "good", Verdict.TIE: "tie"}.get(cell.verdict, "known")


def small_matrix(matrix: Matrix) -> SmallMatrix:
    """The picture of a matrix."""
    counts = Counter(colour(cell) for row in matrix.rows for cell in row.cells if cell)
    return SmallMatrix(
        engine=matrix.engine,
        dtype=matrix.dtype,
        families=tuple(Family(row.family, _text(row)) for row in matrix.rows),
        scenarios=matrix.scenarios,
        strokes=tuple((name, _stroke(matrix, name)) for name in COLOURS if counts[name]),
        counts=tuple((COLOURS[name], counts[name]) for name in COLOURS if counts[name]),
    )


def _stroke(matrix: Matrix, name: str) -> str:
    parts = []
    for line in range(len(matrix.scenarios)):
        cells = [row.cells[line] for row in matrix.rows]
        column = 0
        for here, run in itertools.groupby(bool(cell and colour(cell) == name) for cell in cells):
            count = len(list(run))
            if here:
                parts.append(f"M{column}.1 {line}.5h{count - 1}.8")
            column += count
    return "".join(parts)


def _text(row: Row) -> str:
    counts = Counter(colour(cell) for cell in row.cells if cell)
    found = [f"{counts[name]} {COLOURS[name]}" for name in reversed(list(COLOURS)) if counts[name]]
    return f"{row.family}: {', '.join(found)}"
