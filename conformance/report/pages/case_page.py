"""The page of one case: what is wrong, where, with timeline, tokens and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from conformance.core.invocation import command_about
from conformance.core.picture import Compared, Picture
from conformance.core.verdict import CaseResult
from conformance.report.cascades import Cascade
from conformance.report.explanation import Explanation
from conformance.report.message import measures, message_parts, options_of, where, worst
from conformance.report.pages import charts
from conformance.report.pages.charts import Bar, Chart
from conformance.report.pages.environment import (
    MEANINGS,
    Renderer,
    case_href,
    case_slug,
    matrix_link,
)
from conformance.report.pages.timeline import STYLES, Timeline, timeline_of

T = TypeVar("T")


@dataclass(frozen=True)
class Token:
    """One output token, in the single stream and in the batch; ``None`` after the end of one.

    ``wrong`` is true from the first different token on, ``first`` for that token, and ``moved`` for
    the first whose logprob difference exceeds the noise.
    """

    step: int
    expected: int | None
    got: int | None
    wrong: bool
    first: bool
    moved: bool


@dataclass(frozen=True)
class Number:
    """The measurements at one output token, in nats."""

    step: int
    difference: float | None
    noise: float | None
    margin: float | None
    measured: bool


def render_case(
    result: CaseResult,
    renderer: Renderer,
    *,
    here: str = "",
    above: Sequence[tuple[str, str]] = (),
    cause: Cascade | None = None,
    explanation: Explanation | None = None,
    script: str | None = None,
) -> str:
    """The page's text.

    Args:
        here: the page's path in its folder, unless it is that of the case.
        above: links above the title, as texts and addresses, unless they lead to the matrix.
        cause: the finding that the case belongs to, if its verdict is unexpected.
        explanation: the output of ``conformance explain``, if any.
        script: shows the defect without this project, if there is one.
    """
    picture = result.picture
    compared = picture.compared if picture else None
    finding = worst(result)
    return renderer.page(
        "case.html.j2",
        here or case_href(result.case),
        above=above or _in_matrix(result),
        result=result,
        meaning=MEANINGS[result.verdict],
        parts=message_parts(result),
        picture=picture,
        timeline=timeline_of(picture) if picture else None,
        description=_timeline_text(picture, timeline_of(picture)) if picture else "",
        styles=STYLES,
        compared=compared,
        tokens=tokens(compared) if compared else (),
        numbers=numbers(compared) if compared else (),
        differences=differences(compared) if compared else None,
        caches=caches(picture) if picture else None,
        cause=cause,
        explanation=explanation,
        layers=layers(explanation) if explanation else None,
        script=script,
        repro=_command("repro", result, "--out", f"{case_slug(result.case)}.py"),
        explain=_command("explain", result, "--json", f"{case_slug(result.case)}.json"),
        finding=finding,
        where=where,
        measures=measures,
    )


def _in_matrix(result: CaseResult) -> tuple[tuple[str, str], ...]:
    own = {"engine": result.engine, "family": result.family, "dtype": result.dtype}
    return (
        (f"{result.engine} / {result.family}", matrix_link(**own)),
        ("this cell in the matrix", matrix_link(case=result.case)),
    )


def tokens(compared: Compared) -> tuple[Token, ...]:
    """The tokens side by side. If one stream is longer, they differ after the shorter one's end."""
    mine, theirs = compared.got, compared.expected
    count = max(len(mine), len(theirs))
    pairs = [(_at(theirs, step), _at(mine, step)) for step in range(count)]
    first = next((step for step, (want, got) in enumerate(pairs) if want != got), count)
    return tuple(
        Token(step, want, got, step >= first, step == first, step == compared.bad)
        for step, (want, got) in enumerate(pairs)
    )


def numbers(compared: Compared) -> tuple[Number, ...]:
    """The numbers of each output token that has any."""
    count = max(map(len, (compared.difference, compared.noise, compared.margin)))
    return tuple(
        Number(
            step,
            _at(compared.difference, step),
            _at(compared.noise, step),
            _at(compared.margin, step),
            step < len(compared.difference),
        )
        for step in range(count)
    )


def _at(values: Sequence[T | None], index: int) -> T | None:
    return values[index] if index < len(values) else None


def _timeline_text(picture: Picture, line: Timeline) -> str:
    """The timeline as text, for screen readers."""
    sentences = [f"{picture.rows} requests over {picture.steps} steps."]
    for row in line.rows:
        runs: list[tuple[str, int]] = []
        for cell in row.cells:
            name = STYLES[cell.style]
            if runs and runs[-1][0] == name:
                runs[-1] = (name, runs[-1][1] + 1)
            else:
                runs.append((name, 1))
        stages = ", ".join(f"{name} {n} step{'s' if n > 1 else ''}" for name, n in runs)
        sentences.append(f"{row.name}: {stages or 'never present'}.")
    return " ".join(sentences)


def _command(name: str, result: CaseResult, *more: str) -> str:
    return command_about(name, result.case, options_of(result), *more)


# The charts of a case's page ---------------------------------------------------------------------

_HEIGHT = 260.0
_LOW = 170.0
_BAND, _NARROW = 40.0, 8.0


def differences(compared: Compared) -> Chart | None:
    """Difference, noise and margin over the output tokens; ``None`` without any number."""
    series = (compared.difference, compared.noise, compared.margin)
    count = max(map(len, series))
    if not any(value is not None for values in series for value in values):
        return None
    scale = charts.log_scale((v for values in series for v in values), height=_HEIGHT)
    width, ticks = charts.columns(count)
    bad = compared.bad
    mark = None
    if bad is not None:
        mark = _band(bad, width, f"token {bad}: the first whose difference exceeds the noise")
    names = ("difference", "noise", "margin")
    return Chart(
        key="difference",
        title="Logprob difference at each output token",
        description=f"Request {compared.request_id}, {compared.mode} run: the largest absolute "
        "difference from the single stream, what rounding alone may move, and the single stream's "
        "margin between its two best tokens. "
        + (f"The first difference beyond noise is at token {bad}. " if bad is not None else "")
        + "The numbers are in the table below.",
        height=_HEIGHT,
        x_name="output token",
        y_name="nats",
        x_ticks=ticks,
        y_ticks=scale.ticks,
        lines=tuple(
            charts.line(name, name, values, scale, width=width, unit="nats")
            for name, values in zip(names, series, strict=True)
            if values
        ),
        mark=mark,
    )


def caches(picture: Picture) -> Chart | None:
    """Bytes of live caches after each step; ``None`` if the engine reports none."""
    values = picture.cache_bytes
    if not values:
        return None
    scale = charts.linear_scale(values, height=_LOW, label=charts.size, base=1024)
    width, ticks = charts.columns(len(values))
    bars = []
    for step, value in enumerate(values):
        if value is None:
            continue
        top = scale.place(value)
        box = (charts.LEFT + step * width + 1, top, width - 2, _LOW - charts.BOTTOM - top)
        bars.append(Bar(*box, f"step {step}: {value} bytes"))
    most = max((value for value in values if value is not None), default=0)
    return Chart(
        key="caches",
        title="Bytes of live caches after each step",
        description=f"At most {charts.size(most)}. The numbers are in the table below.",
        height=_LOW,
        x_name="step",
        y_name="bytes",
        x_ticks=ticks,
        y_ticks=scale.ticks,
        bars=tuple(bars),
    )


def layers(explanation: Explanation) -> Chart | None:
    """Error along the layers, and its noise, in the pass that differs first."""
    errors = explanation.layers
    if not errors:
        return None
    series = (tuple(e.error for e in errors), tuple(e.noise for e in errors))
    scale = charts.log_scale((v for values in series for v in values), height=_HEIGHT)
    width, ticks = charts.columns(len(errors))
    at = explanation.where.layer
    names = ("difference", "noise")
    labels = ("relative error", "noise")
    paths = [e.path for e in errors]
    first = next((n for n, e in enumerate(errors) if e.error is None or e.error > 4 * e.noise), at)
    mark = None
    if first is not None and first < len(errors):
        mark = _band(first, width, f"{paths[first]}: the first layer whose error exceeds the noise")
    return Chart(
        key="layers",
        title="Error along the layers",
        description="Largest error of each layer's output relative to the single stream, in the "
        "call that differs first, and its noise. The numbers are in the table below.",
        height=_HEIGHT,
        x_name="layer, in the order of the pass",
        y_name="relative",
        x_ticks=ticks,
        y_ticks=scale.ticks,
        lines=tuple(
            charts.line(name, style, values, scale, width=width, unit="")
            for name, style, values in zip(labels, names, series, strict=True)
        ),
        mark=mark,
    )


def _band(column: int, width: float, text: str) -> Bar:
    """The highlight of a column, wide enough to be visible."""
    wide = min(max(width, _NARROW), _BAND)
    left = charts.LEFT + (column + 0.5) * width - wide / 2
    return Bar(left, charts.TOP, wide, _HEIGHT - charts.TOP - charts.BOTTOM, text)
