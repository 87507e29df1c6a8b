"""The charts of a case's page."""

from __future__ import annotations

from conformance.core.picture import Compared, Picture
from conformance.report.explanation import Explanation
from conformance.report.pages import charts
from conformance.report.pages.charts import Bar, Chart

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
