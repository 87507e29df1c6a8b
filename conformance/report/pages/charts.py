"""The geometry of a chart: scales, ticks and points, which the templates draw.

The look of a chart is in ``templates/*.svg.j2`` and ``assets/case.css``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Considered instead: pygal 3.1 (a script, random ids and a date in each chart, no ARIA role, inline
# colours that a dark theme can't change), matplotlib (no tooltips, inline colours, a large
# package), plotly and altair (need megabytes of JavaScript, which the pages' policy forbids).
WIDTH = 760  # of every chart, in its own units; a page scales it
LEFT = 78  # room for the labels of the vertical axis
RIGHT = 14
TOP = 14
BOTTOM = 34

_MOST_TICKS = 12
_MOST_MARKERS = 60

Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its position and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Point:
    """A value of a series. ``missing`` marks one that is not finite, at the upper edge."""

    x: float
    y: float
    text: str
    missing: bool = False


@dataclass(frozen=True)
class Line:
    """A series: ``runs`` are its connected points."""

    name: str
    style: str
    runs: tuple[tuple[Point, ...], ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All points."""
        return tuple(point for run in self.runs for point in run)


@dataclass(frozen=True)
class Bar:
    """One bar, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    text: str
    style: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart as a template draws it; ``mark`` highlights a step, if any.

    ``key`` is the prefix of its element ids, unique within a page.
    """

    key: str
    title: str
    description: str
    height: float
    x_name: str
    y_name: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    mark: Bar | None = None

    @property
    def dense(self) -> bool:
        """Whether there are so many points that they must be drawn small."""
        return any(len(line.points) > _MOST_MARKERS for line in self.lines)

    @property
    def width(self) -> float:
        """The width of the chart, in its own units."""
        return WIDTH

    @property
    def left(self) -> float:
        """Left edge of the plot."""
        return LEFT

    @property
    def right(self) -> float:
        """Right edge of the plot."""
        return WIDTH - RIGHT

    @property
    def top(self) -> float:
        """Upper edge of the plot."""
        return TOP

    @property
    def bottom(self) -> float:
        """Lower edge of the plot."""
        return self.height - BOTTOM


@dataclass(frozen=True)
class Scale:
    """Maps values to positions on the vertical axis, with its ticks."""

    place: Callable[[float], float]
    ticks: tuple[Tick, ...]


def log_scale(values: Iterable[float | None], *, height: float) -> Scale:
    """Decades from the smallest positive value to the largest. Zero is a line below them all."""
    found = [v for v in values if v is not None]
    positive = [v for v in found if v > 0]
    low = math.floor(math.log10(min(positive, default=1e-7)))
    high = math.ceil(math.log10(max(positive, default=1.0)))
    high = max(high, low + 1)
    zero = any(v <= 0 for v in found)
    bottom, room = height - BOTTOM, height - BOTTOM - TOP
    base = bottom - (room / (high - low + 1) if zero else 0)

    def place(value: float) -> float:
        if value <= 0:
            return bottom
        return base - (base - TOP) * (math.log10(value) - low) / (high - low)

    every = math.ceil((high - low) / 7)
    ticks = [Tick(place(10.0**n), power(n)) for n in range(low, high + 1, every)]
    return Scale(place, (*([Tick(bottom, "0")] if zero else []), *ticks))


def linear_scale(
    values: Iterable[float | None], *, height: float, label: Callable[[float], str], base: int = 10
) -> Scale:
    """From zero to the largest value, with ticks at round numbers of ``base`` 10 or 1024."""
    largest = max((v for v in values if v is not None), default=0) or 1
    step = round_step(largest / 4, base)
    count = math.ceil(largest / step)
    bottom, room = height - BOTTOM, height - BOTTOM - TOP

    def place(value: float) -> float:
        return bottom - room * value / (count * step)

    ticks = [Tick(place(n * step), label(n * step)) for n in range(count + 1)]
    return Scale(place, tuple(ticks))


def round_step(wanted: float, base: int = 10) -> float:
    """The smallest round number that is not below ``wanted``."""
    unit = base ** math.floor(math.log(max(wanted, 1e-300), base))
    round_ones = (1, 2, 5, 10) if base == 10 else (*(2**n for n in range(11)),)
    return float(next(n * unit for n in round_ones if n * unit >= wanted * (1 - 1e-9)))


def columns(count: int) -> tuple[float, tuple[Tick, ...]]:
    """The width of each of ``count`` columns, and ticks in the middle of some, from 0."""
    width = (WIDTH - LEFT - RIGHT) / max(count, 1)
    every = max(1, int(round_step(count / _MOST_TICKS)))
    ticks = (Tick(LEFT + (n + 0.5) * width, str(n)) for n in range(0, count, every))
    return width, tuple(ticks)


def line(name: str, style: str, values: Numbers, scale: Scale, *, width: float, unit: str) -> Line:
    """A series over columns. A value of ``None`` interrupts it and is marked at the upper edge."""
    runs: list[list[Point]] = [[]]
    for index, value in enumerate(values):
        x = LEFT + (index + 0.5) * width
        if value is None:
            lost = Point(x, TOP, f"{name} at {index}: not finite", missing=True)
            runs += [[lost], []]
            continue
        text = f"{name} at {index}: {value:.3g} {unit}".strip()
        runs[-1].append(Point(x, scale.place(value), text))
    return Line(name, style, tuple(tuple(run) for run in runs if run))


def power(exponent: int) -> str:
    """A power of ten with a superscript: ``10⁻⁶`` instead of ``1e-06``."""
    digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "1" if exponent == 0 else "10" if exponent == 1 else f"10{digits}"


def size(nbytes: float) -> str:
    """Bytes with a unit: ``768 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    raise AssertionError
