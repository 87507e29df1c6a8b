"""A schedule as a timeline: a row for each request, a column for each step of the engine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.core.picture import Lane, Picture, unpacked
from conformance.core.schedule import Stage
from conformance.report.pages.charts import Bar, Tick

# Considered instead: matplotlib's `broken_barh` (no tooltips, no hatching of a share of a bar,
# inline colours) and the Gantt charts of plotly and altair (JavaScript).
LABELS = 120  # space for the names of requests, in the picture's own units
HEAD = 24  # space for the numbers of steps
ROW = 26  # height of a request's row, of which 4 are left free
WORK = 46  # height of the row that shows how many positions were computed
WIDEST, NARROWEST = 60, 12  # of a step
_PLOT = 640
_NAME = 16  # characters
_WORDS = 26  # a wider cell shows its numbers

_Call = tuple[int, int]


@dataclass(frozen=True)
class Cell:
    """A request in a step. ``padded`` is the share of its height for padding, 0 to 1."""

    box: Bar
    style: str
    text: str
    label: str = ""
    padded: float = 0.0


@dataclass(frozen=True)
class Row:
    """A request: its name, where it is drawn, and its cells."""

    name: str
    y: float
    cells: tuple[Cell, ...]

    @property
    def short(self) -> str:
        """The name, shortened in the middle, because its end distinguishes it, too."""
        if len(self.name) <= _NAME:
            return self.name
        return f"{self.name[: _NAME - 8]}…{self.name[-7:]}"


@dataclass(frozen=True)
class Work:
    """What a step computed: positions of prompts and of rows that decode, and padding."""

    step: int
    real: int
    padded: int
    calls: str
    real_box: Bar
    padded_box: Bar


@dataclass(frozen=True)
class Timeline:
    """The timeline as the template draws it. Lengths are in the picture's own units."""

    width: float
    height: float
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    works: tuple[Work, ...]
    most: int
    probes: tuple[Tick, ...]
    end: Tick | None
    left_out: str

    @property
    def styles(self) -> tuple[str, ...]:
        """The styles that its legend explains, in the order of a request's stages."""
        seen = {cell.style for row in self.rows for cell in row.cells}
        return tuple(style for style in STYLES if style in seen)

    @property
    def names_end(self) -> float:
        """The right edge of the row names."""
        return LABELS - 8

    @property
    def padded(self) -> bool:
        """Whether it shows padding."""
        return any(work.padded for work in self.works)


STYLES: Mapping[str, str] = {
    "queued": "queued",
    "prefill": "prefill",
    "decode": "decode",
    "finished": "finished",
    "removed": "cancelled",
}
"""The kinds of cells, and their names in the legend."""


def timeline_of(picture: Picture) -> Timeline:
    """The timeline of a picture."""
    lanes = {lane.request_id: unpacked(lane.stages) for lane in picture.lanes}
    shown = max([len(picture.calls), *(len(unpacked(lane.stages)) for lane in picture.lanes)])
    width = min(WIDEST, max(NARROWEST, _PLOT / max(shown, 1)))
    padding = [_padding(picture, lanes, step) for step in range(shown)]
    rows = tuple(
        Row(lane.request_id, HEAD + ROW * index, _cells(lane, index, width, padding))
        for index, lane in enumerate(picture.lanes)
    )
    bottom = HEAD + ROW * len(rows)
    works = _works(picture, padding, width=width, top=bottom + 6)
    every = 1 if width >= _WORDS else 5
    end = LABELS + shown * width
    return Timeline(
        width=end + 260 if picture.stopped else max(end + 12, 420),
        height=bottom + WORK + 12,
        ticks=tuple(Tick(LABELS + (n + 0.5) * width, str(n)) for n in range(0, shown, every)),
        rows=rows,
        works=works,
        most=max((work.real + work.padded for work in works), default=0),
        probes=tuple(Tick(LABELS + step * width, kind) for step, kind in picture.probes),
        end=Tick(end, picture.stopped) if picture.stopped else None,
        left_out=_left_out(picture, shown),
    )


def _left_out(picture: Picture, shown: int) -> str:
    more = [
        f"{picture.steps - shown} more steps" if picture.steps > shown else "",
        f"{picture.rows - len(picture.lanes)} more requests"
        if picture.rows > len(picture.lanes)
        else "",
    ]
    words = " and ".join(part for part in more if part)
    return f"{words} are not shown" if words else ""


def _cells(
    lane: Lane, index: int, width: float, padding: Sequence[Mapping[str, int]]
) -> tuple[Cell, ...]:
    """Cells of the steps with the request; a step with a piece of its prompt is prefill."""
    pieces = dict(lane.pieces)
    cells = []
    for step, stage in enumerate(unpacked(lane.stages)):
        if stage is None:
            continue
        box = Bar(LABELS + step * width + 1, HEAD + ROW * index + 2, width - 2, ROW - 4, "")
        worked, padded = pieces.get(step, 0), padding[step].get(lane.request_id, 0)
        style = Stage.PREFILL.value if worked else stage.value
        parts = [f"{lane.request_id}, step {step}: {STYLES[style]}"]
        parts += [f"{worked} prompt tokens"] if worked else []
        parts += [f"{padded} padded positions"] if padded else []
        share = padded / (worked + padded) if worked else 0.0
        label = str(worked) if worked and width >= _WORDS else ""
        cells.append(Cell(box, style, ", ".join(parts), label, share))
    return tuple(cells)


Stages = Mapping[str, Sequence[Stage | None]]


def _works(
    picture: Picture, padding: Sequence[Mapping[str, int]], *, width: float, top: float
) -> tuple[Work, ...]:
    totals = []
    for step, text in enumerate(picture.calls):
        computed = sum(rows * length for rows, length in _calls(text))
        done = sum(dict(lane.pieces).get(step, 0) for lane in picture.lanes)
        wide = sum(rows * length for rows, length in _calls(text) if length > 1)
        # If unknown for single rows: counted as in the result's totals.
        padded = sum(padding[step].values()) or max(0, wide - done)
        totals.append((computed - padded, padded, text))
    most = max((real + padded for real, padded, _ in totals), default=0)
    unit = (WORK - 14) / max(most, 1)
    works = []
    for step, (real, padded, text) in enumerate(totals):
        x, base = LABELS + step * width + 1, top + WORK - 10
        real_box = Bar(x, base - real * unit, width - 2, real * unit, "")
        padded_box = Bar(x, base - (real + padded) * unit, width - 2, padded * unit, "")
        works.append(Work(step, real, padded, text.replace("x", " x "), real_box, padded_box))
    return tuple(works)


def _padding(picture: Picture, lanes: Stages, step: int) -> Mapping[str, int]:
    """Padded positions added to each request's piece of a prompt, if known."""
    rows = _rows_of_the_wide_call(picture, lanes, step)
    if rows is None:
        return {}
    (_, length), members = rows
    return {name: length - done for name, done in members.items() if done < length}


def _rows_of_the_wide_call(
    picture: Picture, lanes: Stages, step: int
) -> tuple[_Call, dict[str, int]] | None:
    """A step's one call with several columns, and how many of them each of its rows uses.

    Its rows are all requests with a piece of a prompt, or those with more than one token (the last
    token of a prompt often has its own call of one column), or all requests with a piece and all
    decoding requests.
    """
    text = picture.calls[step] if step < len(picture.calls) else ""
    wide = [call for call in _calls(text) if call[1] > 1]
    if len(wide) != 1:
        return None
    done = {lane.request_id: dict(lane.pieces).get(step, 0) for lane in picture.lanes}
    working = {name: count for name, count in done.items() if count}
    decoding = {
        name: 1
        for name, stages in lanes.items()
        if step < len(stages) and stages[step] is Stage.DECODE and not done[name]
    }
    longer = {name: count for name, count in working.items() if count > 1}
    for members in (working, longer, working | decoding):
        if len(members) == wide[0][0] and max(members.values()) <= wide[0][1]:
            return wide[0], members
    return None


def _calls(text: str) -> list[_Call]:
    """The calls in a picture's text: rows and columns."""
    return [(int(a), int(b)) for a, b in re.findall(r"\b(\d{1,9})x(\d{1,9})\b", text)]
