"""The kill matrix as a page: faults by families, with the outcome of each pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.core.grouping import grouped
from conformance.core.verdict import Verdict
from conformance.report.matrix import GLYPHS
from conformance.report.pages.environment import Renderer
from conformance.report.trials import Outcome, Trial

HERE = "faults.html"

MARKS = {
    Outcome.KILLED: "K",
    Outcome.SURVIVED: "S",
    Outcome.HIDDEN: "h",
    Outcome.NOT_APPLICABLE: "",
}
"""The text of a cell; a kill shows the letter of the verdict that caught it."""

_STYLES = {outcome: outcome.value for outcome in Outcome} | {Outcome.NOT_APPLICABLE: "na"}


@dataclass(frozen=True)
class Cell:
    """A fault in a family; ``text`` gives the details."""

    mark: str
    outcome: Outcome
    text: str

    @property
    def style(self) -> str:
        """Its class in the style sheet; short for the many that are not applicable."""
        return _STYLES[self.outcome]


@dataclass(frozen=True)
class Row:
    """A fault. ``cells`` has one entry for each family, ``None`` if it was not tried."""

    fault: str
    cells: tuple[Cell | None, ...]

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Its outcomes, as the page's filter names them; ``idle``: applicable nowhere."""
        seen = {cell.style for cell in self.cells if cell}
        seen |= {"idle"} if seen == {_STYLES[Outcome.NOT_APPLICABLE]} else set()
        return tuple(sorted(seen))


@dataclass(frozen=True)
class Group:
    """A class of faults, and its pairs of fault and family by outcome."""

    name: str
    key: str
    rows: tuple[Row, ...]
    counts: tuple[int, ...]

    @property
    def share(self) -> float | None:
        """The killed share of the faults that could be killed; ``None`` if none could."""
        killed, survived = self.counts[:2]
        return killed / (killed + survived) if killed + survived else None


@dataclass(frozen=True)
class Matrix:
    """All trials of one engine, dtype and seed."""

    engine: str
    dtype: str
    seed: int
    families: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def all(self) -> Group:
        """All its classes in one group."""
        rows = tuple(row for group in self.groups for row in group.rows)
        counts = tuple(map(sum, zip(*(group.counts for group in self.groups), strict=True)))
        return Group("all", "", rows, counts)


def render_power(trials: Sequence[Trial], renderer: Renderer) -> str:
    """The page's text."""
    found = matrices(trials)
    verdicts = {kill.verdict for trial in trials for kill in trial.kills[:1]}
    return renderer.page(
        "faults.html.j2",
        HERE,
        matrices=found,
        outcomes=tuple(Outcome),
        verdicts=[(v, GLYPHS[v]) for v in Verdict if v.value in verdicts],
        survivors=[trial for trial in trials if trial.outcome is Outcome.SURVIVED],
        hidden=_reasons(trials, Outcome.HIDDEN),
    )


def matrices(trials: Sequence[Trial]) -> tuple[Matrix, ...]:
    """One for each engine, dtype and seed, in the order of their first trial."""
    lanes = grouped(trials, lambda trial: (trial.engine, trial.dtype, trial.seed))
    return tuple(_matrix(*key, lane, number) for number, (key, lane) in enumerate(lanes.items()))


def _matrix(engine: str, dtype: str, seed: int, trials: list[Trial], number: int) -> Matrix:
    families = tuple(sorted({trial.family for trial in trials}))
    ordered = sorted(trials, key=lambda trial: (trial.fault_class, trial.fault))
    classes = grouped(ordered, lambda trial: trial.fault_class)
    groups = tuple(
        Group(name, f"class-{number}-{place}", _rows(own, families), _counts(own))
        for place, (name, own) in enumerate(classes.items())
    )
    return Matrix(engine, dtype, seed, families, groups)


def _rows(trials: Sequence[Trial], families: Sequence[str]) -> tuple[Row, ...]:
    faults = dict.fromkeys(trial.fault for trial in trials)
    table = {(trial.fault, trial.family): _cell(trial) for trial in trials}
    return tuple(
        Row(fault, tuple(table.get((fault, family)) for family in families)) for fault in faults
    )


def _counts(trials: Sequence[Trial]) -> tuple[int, ...]:
    found = Counter(trial.outcome for trial in trials)
    return tuple(found[outcome] for outcome in Outcome)


def _cell(trial: Trial) -> Cell:
    if not trial.kills:
        reason = trial.why or f"tried {', '.join(trial.tried)}"
        return Cell(MARKS[trial.outcome], trial.outcome, f"{trial.outcome}: {reason}")
    kill = trial.kills[0]
    ratio = "" if kill.ratio is None else f", {kill.ratio:.3g} times the noise"
    text = f"{kill.scenario}: {kill.verdict} ({', '.join(kill.checks)}{ratio})"
    return Cell(GLYPHS[Verdict(kill.verdict)], trial.outcome, text)


def _reasons(trials: Sequence[Trial], outcome: Outcome) -> list[tuple[str, list[Trial]]]:
    """The trials of one outcome, grouped by reason."""
    own = (trial for trial in trials if trial.outcome is outcome)
    return sorted(grouped(own, lambda trial: trial.why).items())
