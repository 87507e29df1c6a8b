"""The page of one case: what is wrong, where, with timeline, tokens and charts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jinja2

from conformance.core.picture import Compared, Picture
from conformance.core.verdict import CaseResult
from conformance.report.cascades import Cascade
from conformance.report.explanation import Explanation
from conformance.report.message import measures, message_parts, where, worst
from conformance.report.pages import drawings
from conformance.report.pages.environment import Page, render_page
from conformance.report.pages.slugs import case_href, case_slug
from conformance.report.pages.timeline import STYLES, Timeline, timeline_of
from conformance.report.pages.words import MEANINGS

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
    environment: jinja2.Environment,
    *,
    pages: tuple[Page, ...],
    cause: Cascade | None = None,
    explanation: Explanation | None = None,
    script: str | None = None,
) -> str:
    """The page's text.

    Args:
        cause: the finding that the case belongs to, if its verdict is unexpected.
        explanation: the output of ``conformance explain``, if any.
        script: shows the defect without this project, if there is one.
    """
    picture = result.picture
    compared = picture.compared if picture else None
    finding = worst(result)
    return render_page(
        environment,
        "case.html.j2",
        here=case_href(result.case),
        pages=pages,
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
        differences=drawings.differences(compared) if compared else None,
        caches=drawings.caches(picture) if picture else None,
        cause=cause,
        explanation=explanation,
        layers=drawings.layers(explanation) if explanation else None,
        script=script,
        repro=_command("repro", result, "--out", f"{case_slug(result.case)}.py"),
        explain=_command("explain", result, "--json", f"{case_slug(result.case)}.json"),
        finding=finding,
        where=where,
        measures=measures,
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
    return shlex.join(["conformance", name, result.case, *more])
