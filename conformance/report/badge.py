"""The result of a run, or an engine's level, as a badge: SVG, and shields' endpoint JSON.

Source: the JSON is the schema of shields.io's endpoint badge, version 1.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from conformance.core.verdict import CaseResult, Verdict
from conformance.report.markdown import one_line
from conformance.report.outcome import count

LABEL = "batched decoding"

_COLOURS = {"brightgreen": "#4c1", "green": "#97ca00", "red": "#e05d44", "lightgrey": "#9f9f9f"}
_HEIGHT = 20  # pixels
_LETTER = 6.6  # pixels of one letter at 11 px, on the average; `textLength` makes it exact
_MARGIN = 6  # pixels on each side of a text
_LINE = 15  # pixels from one line of a long message to the next
_LONGEST = 52  # letters in a line


@dataclass(frozen=True)
class Badge:
    """A label, its message, and one of shields' colour names."""

    message: str
    colour: str
    label: str = LABEL


def badge(
    results: Iterable[CaseResult], label: str = LABEL, missing: int = 0, *, problems: int = 0
) -> Badge:
    """How many of the applicable cases are exact or tie; red if a verdict is unexpected.

    Also red if planned cases are ``missing`` or there are ``problems`` outside of cases.

    Expected ``unsupported`` does not count; a known upstream defect counts against the library.
    """
    found = [r for r in results if r.verdict is not Verdict.UNSUPPORTED or not r.expected]
    good = sum(r.right_as_released for r in found)
    unexpected = sum(not r.expected for r in found)
    if missing:
        return Badge(f"{missing} not run, {good} of {len(found)} conform", "red", label)
    if not found:
        return Badge("no cases", "lightgrey", label)
    share = f"{good} of {len(found)} conform"
    if unexpected:
        return Badge(f"{unexpected} unexpected, {share}", "red", label)
    if problems:
        return Badge(f"{count(problems, 'problem')}, {share}", "red", label)
    return Badge(share, "brightgreen" if good == len(found) else "green", label)


def endpoint_json(shown: Badge) -> str:
    """The JSON for shields' endpoint."""
    fields = {"label": shown.label, "message": shown.message, "color": shown.colour}
    return json.dumps({"schemaVersion": 1, **fields}) + "\n"


def svg(shown: Badge) -> str:
    """The badge as a self-contained SVG image; a long message has several lines."""
    label = one_line(shown.label)
    lines = textwrap.wrap(one_line(shown.message), _LONGEST) or [""]
    left, right = _width(label), max(map(_width, lines))
    height = _HEIGHT + _LINE * (len(lines) - 1)
    title = f"{label}: {one_line(shown.message)}"
    size = f'width="{left + right}" height="{height}"'
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {left + right} {height}" '
        f'role="img" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        f'<clipPath id="r"><rect {size} rx="3"/></clipPath>',
        '<g clip-path="url(#r)">',
        f'<rect width="{left}" height="{height}" fill="#555"/>',
        f'<rect x="{left}" width="{right}" height="{height}" fill="{_COLOURS[shown.colour]}"/>',
        "</g>",
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" '
        'font-size="11">',
        _text(label, left / 2, (height + 8) / 2),
        *(_text(line, left + right / 2, 14 + _LINE * n) for n, line in enumerate(lines)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(shapes) + "\n"


def _width(text: str) -> int:
    return round(len(text) * _LETTER) + 2 * _MARGIN


def _text(text: str, middle: float, base: float) -> str:
    length = _width(text) - 2 * _MARGIN
    return f'<text x="{middle:g}" y="{base:g}" textLength="{length}">{escape(text)}</text>'
