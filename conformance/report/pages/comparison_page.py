"""The page that compares two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.core.verdict import CaseResult
from conformance.report.comparison import Change, Comparison, Kind, compare
from conformance.report.pages.environment import Renderer
from conformance.report.pages.matrix_page import has_page

HERE = "comparison.html"


@dataclass(frozen=True)
class Grid:
    """The changed verdicts of one engine and dtype; ``None`` for unchanged cells."""

    engine: str
    dtype: str
    scenarios: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Change | None, ...]], ...]


def render_comparison(
    before: Sequence[CaseResult],
    after: Sequence[CaseResult],
    renderer: Renderer,
) -> str:
    """The page's text.

    Raises:
        ResultError: a run has no case, or a case twice.
    """
    found = compare(before, after)
    return renderer.page(
        "comparison.html.j2",
        HERE,
        found=found,
        kinds=[(kind, found.of(kind)) for kind in Kind if found.of(kind)],
        grids=grids(found),
        counts=(len(before), len(after)),
        linked=lambda change: change.after is not None and has_page(change.after),
    )


def grids(found: Comparison) -> tuple[Grid, ...]:
    """The changed cells that both runs have, for each engine and dtype; the worst seed of each."""
    lanes: dict[tuple[str, str], list[Change]] = {}
    for change in found.changes:
        kept = change.kind not in (Kind.NOISE, Kind.MOVED)
        if kept and change.before and change.after:
            lanes.setdefault((change.result.engine, change.result.dtype), []).append(change)
    return tuple(_grid(*key, changes) for key, changes in sorted(lanes.items()))


def _grid(engine: str, dtype: str, changes: Sequence[Change]) -> Grid:
    # Changes are sorted worst first, so that a cell of several seeds shows its worst one.
    cells: dict[tuple[str, str], Change] = {}
    for change in changes:
        cells.setdefault((change.result.family, change.result.scenario), change)
    scenarios = tuple(sorted({scenario for _, scenario in cells}))
    families = sorted({family for family, _ in cells})
    return Grid(
        engine,
        dtype,
        scenarios,
        tuple((f, tuple(cells.get((f, scenario)) for scenario in scenarios)) for f in families),
    )
