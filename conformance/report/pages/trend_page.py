"""Several runs side by side, such as releases: what was wrong in which run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.core.verdict import Verdict
from conformance.report.history import History, Run, State, histories
from conformance.report.matrix import GLYPHS
from conformance.report.pages.charts import BOTTOM, LEFT, Bar, Chart, Tick, columns, linear_scale
from conformance.report.pages.environment import Renderer

HERE = "trend.html"

_HEIGHT = 220.0


@dataclass(frozen=True)
class Total:
    """The schedules of one run: how many are right, wrong or undecided."""

    name: str
    right: int
    wrong: int
    undecided: int


@dataclass(frozen=True)
class Cell:
    """A family in a run: its worst verdict, and how many of its decided schedules are wrong."""

    worst: Verdict | None
    wrong: int
    decided: int

    @property
    def mark(self) -> str:
        """The glyph of the worst verdict; empty if no schedule is decided."""
        if not self.decided:
            return ""
        return GLYPHS[self.worst or Verdict.EXACT]


@dataclass(frozen=True)
class Row:
    """A family of an engine over the runs."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def changes(self) -> bool:
        """Whether it differs between runs in which it is decided."""
        return len({(cell.worst, cell.wrong > 0) for cell in self.cells if cell.decided}) > 1


def render_trend(runs: Sequence[Run], renderer: Renderer) -> str:
    """The page's text.

    Args:
        runs: names and results of the runs, oldest first.
    """
    found = histories(runs)
    names = [name for name, _ in runs]
    totals_ = totals(names, found)
    return renderer.page(
        "trend.html.j2",
        HERE,
        names=names,
        totals=totals_,
        chart=_chart(totals_),
        rows=rows(found),
        changed=_table(history for history in found if history.changed),
        lasting=_table(h for h in found if State.WRONG in h.states and State.RIGHT not in h.states),
    )


def totals(names: Sequence[str], found: Sequence[History]) -> tuple[Total, ...]:
    """The totals of each run."""
    states = [[history.states[index] for history in found] for index in range(len(names))]
    return tuple(
        Total(name, *(own.count(state) for state in (State.RIGHT, State.WRONG, State.UNKNOWN)))
        for name, own in zip(names, states, strict=True)
    )


def rows(found: Sequence[History]) -> tuple[Row, ...]:
    """A row for each engine and family; rows that differ between runs come first."""
    groups: dict[str, list[History]] = {}
    for history in found:
        groups.setdefault(f"{history.case.partition('/')[0]}/{history.family}", []).append(history)
    table = [
        Row(name, tuple(_cell(own, index) for index in range(len(own[0].outcomes))))
        for name, own in groups.items()
    ]
    return tuple(sorted(table, key=lambda row: (not row.changes, row.name)))


def _cell(own: Sequence[History], index: int) -> Cell:
    states = [history.states[index] for history in own]
    wrong = [t.verdict for h in own if (t := h.outcomes[index]) and h.states[index] is State.WRONG]
    worst = max(wrong, key=lambda verdict: verdict.severity, default=None)
    return Cell(worst, len(wrong), len(wrong) + states.count(State.RIGHT))


def _table(found: Iterable[History]) -> list[tuple[str, str, str]]:
    """Case and schedule, its states over the runs, and an example of what was wrong."""
    return [
        (f"{h.case}{f' ({h.schedule})' if h.schedule else ''}", h.shape, h.example) for h in found
    ]


def _chart(found: Sequence[Total]) -> Chart:
    """Right and wrong schedules of each run, as stacked bars."""
    most = max((total.right + total.wrong for total in found), default=0)
    scale = linear_scale([most], height=_HEIGHT, label=lambda value: f"{value:.0f}")
    width, ticks = columns(len(found))
    bars = []
    bottom = _HEIGHT - BOTTOM
    for index, total in enumerate(found):
        thick = min(width * 0.7, 60)
        left = LEFT + (index + 0.5) * width - thick / 2
        wrong, both = scale.place(total.wrong), scale.place(total.wrong + total.right)
        bars += [
            Bar(left, wrong, thick, bottom - wrong, f"{total.name}: {total.wrong} wrong", "wrong"),
            Bar(left, both, thick, wrong - both, f"{total.name}: {total.right} right", "right"),
        ]
    names = [total.name for total in found]
    return Chart(
        key="trend",
        title="Right and wrong schedules of each run",
        description="The numbers are in the table below.",
        height=_HEIGHT,
        x_name="",
        y_name="schedules",
        x_ticks=tuple(Tick(tick.at, names[int(tick.label)]) for tick in ticks),
        y_ticks=scale.ticks,
        bars=tuple(bars),
    )
