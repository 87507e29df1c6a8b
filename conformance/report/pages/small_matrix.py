"""The small picture of a matrix on the first page: a column is a family, a row a scenario.

Adjacent cells of one colour are one stroke, dashed so that each cell is visible: a picture of ten
thousand cells has a few thousand numbers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.core.verdict import CaseResult, Verdict
from conformance.report.matrix import Cell, Matrix, Row, matrices

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


def small_matrices(
    results: Sequence[CaseResult], scenarios: Sequence[str]
) -> tuple[SmallMatrix, ...]:
    """One for each engine and dtype; ``scenarios`` are all, in the order of the ladder."""
    return tuple(map(_small, matrices(results, scenarios)))


def colour(cell: Cell) -> str:
    """The colour of a cell, one of ``COLOURS``: as in the large matrix."""
    if not cell.expected:
        return "bad"
    if cell.verdict in (Verdict.UNSUPPORTED, Verdict.POLICY):
        return "none"
    known = "mended" if cell.mended else "known"
    return {Verdict.EXACT: "good", Verdict.TIE: "tie"}.get(cell.verdict, known)


def _small(matrix: Matrix) -> SmallMatrix:
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
