"""Families x scenarios, as plain data: one matrix for each engine and dtype."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.core.grouping import grouped
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.message import new_verdict

GLYPHS = {
    Verdict.EXACT: ".",
    Verdict.TIE: "=",
    Verdict.POLICY: "p",
    Verdict.UNSUPPORTED: "-",
    Verdict.VACUOUS: "V",
    Verdict.COST: "$",
    Verdict.DRIFT: "~",
    Verdict.DIVERGED: "X",
    Verdict.UNSTABLE: "U",
    Verdict.LEAK: "L",
    Verdict.PROTOCOL: "P",
    Verdict.NAN: "N",
    Verdict.ORACLE: "O",
    Verdict.HANG: "H",
    Verdict.CRASH: "C",
}
"""One ASCII character for each verdict, so that a matrix reads the same without colour."""

UNEXPECTED = "!"
"""Follows the glyph of an unexpected verdict."""

MENDED = "'"
"""Follows the glyph of a known verdict if the case is right with its known defects mended.

Behind the glyph of a right verdict: the case was run with them mended, and not as released.
"""


def mark(*, expected: bool, mended: bool = False) -> str:
    """The mark that follows the glyph of a verdict."""
    if not expected:
        return UNEXPECTED
    return MENDED if mended else ""


@dataclass(frozen=True)
class Cell:
    """The result of a family in a scenario: the worst over the seeds that were run.

    ``mended`` is whether it is right with its known defects mended.
    """

    verdict: Verdict
    expected: bool
    mended: bool = False

    @property
    def text(self) -> str:
        """The verdict's glyph, and a mark behind it if it is not expected, or right once mended."""
        return GLYPHS[self.verdict] + mark(expected=self.expected, mended=self.mended)

    @property
    def badness(self) -> tuple[bool, int, bool]:
        """Orders cells: anything unexpected is worse than anything expected."""
        return (not self.expected, self.verdict.severity, not self.mended)


@dataclass(frozen=True)
class Row:
    """One family. ``cells`` has one entry for each scenario, ``None`` if it was not run."""

    family: str
    cells: tuple[Cell | None, ...]

    @property
    def clean(self) -> bool:
        """Whether every cell is exact or tie, as expected and as released."""
        cells = [cell for cell in self.cells if cell]
        return all(cell.verdict.good and cell.expected and not cell.mended for cell in cells)

    @property
    def unsupported(self) -> bool:
        """Whether every cell is an expected ``unsupported``."""
        return all(
            cell.verdict is Verdict.UNSUPPORTED and cell.expected for cell in self.cells if cell
        )


@dataclass(frozen=True)
class Matrix:
    """All families of one engine and dtype, by name; ``scenarios`` are the columns."""

    engine: str
    dtype: str
    scenarios: tuple[str, ...]
    rows: tuple[Row, ...]


def matrices(results: Iterable[CaseResult], order: Sequence[str] = ()) -> tuple[Matrix, ...]:
    """One matrix for each engine and dtype, in the order of their first result.

    Args:
        results: results of a run; several seeds of a case become one cell.
        order: order of the columns; other scenarios come last, by name.
    """
    lanes = grouped(results, lambda result: (result.engine, result.dtype))
    return tuple(_matrix(engine, dtype, lane, order) for (engine, dtype), lane in lanes.items())


def _matrix(engine: str, dtype: str, results: list[CaseResult], order: Sequence[str]) -> Matrix:
    cells: dict[tuple[str, str], Cell] = {}
    for result in results:
        key = (result.family, result.scenario)
        cell = Cell(new_verdict(result), result.expected, result.right_once_mended)
        cells[key] = max(cells.get(key, cell), cell, key=lambda item: item.badness)
    rank = {name: index for index, name in enumerate(order)}
    scenarios = sorted({s for _, s in cells}, key=lambda name: (rank.get(name, len(rank)), name))
    return Matrix(
        engine=engine,
        dtype=dtype,
        scenarios=tuple(scenarios),
        rows=tuple(
            Row(family, tuple(cells.get((family, scenario)) for scenario in scenarios))
            for family in sorted({family for family, _ in cells})
        ),
    )
