"""The status site: engines over their releases, from result files of any number of runs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import conformance
from conformance.core.invocation import command_about
from conformance.core.known_defect import KnownDefect
from conformance.core.levels import LEVELS
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.badge import endpoint_json, svg
from conformance.report.message import options_of
from conformance.report.pages import defects_page
from conformance.report.pages.case_page import render_case
from conformance.report.pages.charts import BOTTOM, LEFT, Bar, Chart, Tick, columns, linear_scale
from conformance.report.pages.environment import MEANINGS, Page, Renderer, case_href, case_slug
from conformance.report.pages.place import MARK, whole_folder
from conformance.report.pages.site import write_files
from conformance.report.status import EngineStatus, Release, Standing, level_sentence, status_of

HERE = "index.html"

_ASSETS = ("style.css", "theme.js", "case.css", "copy.js", "status.css")
_HEIGHT = 220.0
_MOST = 12  # families in an open list of what came or went
_PLAIN = re.compile(r"[a-z0-9_]+")


def write_status(
    folder: Path, results: Sequence[CaseResult], defects: Sequence[KnownDefect] = ()
) -> int:
    """Write the site, completely or not at all; replace an older one.

    Args:
        results: results of any number of files, releases and engines.
        defects: all known upstream defects, in their order.

    Returns: the number of pages.

    Raises:
        ReportError: the folder holds other files, or it cannot be written.
    """
    with whole_folder(folder) as new:
        return write_files(new, _files(status_of(results), defects), _ASSETS)


def _files(
    engines: Sequence[EngineStatus], defects: Sequence[KnownDefect]
) -> Iterator[tuple[str, str]]:
    """Each file's name and text."""
    newest = [result for one in engines for result in one.newest.results]
    shown = defects_page.defects_shown(defects, newest)
    anchors = {entry: one.defect.id for one in shown for entry in one.defect.entries}
    pages = [Page(HERE, "Status"), *(Page(engine_href(one.engine), one.engine) for one in engines)]
    pages += [Page(defects_page.HERE, "Defects")] if shown else []
    renderer = Renderer(tuple(pages), defects=anchors)
    yield HERE, _index(engines, renderer)
    for one in engines:
        yield engine_href(one.engine), _engine(one, renderer)
        yield from _cases(one, renderer)
        yield f"{badge_stem(one.engine)}.svg", svg(one.badge)
        yield f"{badge_stem(one.engine)}.json", endpoint_json(one.badge)
    if shown:
        yield defects_page.HERE, defects_page.render_defects(shown, renderer)
    about = {
        "format": "mlx-conformance status",
        "version": conformance.__version__,
        "engines": {one.engine: [release.name for release in one.releases] for one in engines},
    }
    yield MARK, json.dumps(about, indent=2) + "\n"


def engine_href(name: str) -> str:
    """The path of an engine's page."""
    return f"engine-{_stem(name)}.html"


def badge_stem(name: str) -> str:
    """The path of an engine's badge, without ``.svg`` or ``.json``."""
    return f"badges/{_stem(name)}"


def _stem(name: str) -> str:
    """The name in a path; with a digest if a file name cannot have it."""
    return name if _PLAIN.fullmatch(name) else case_slug(name)


def _index(engines: Sequence[EngineStatus], renderer: Renderer) -> str:
    newest = [one.newest for one in engines]
    return renderer.page(
        "status.html.j2",
        HERE,
        engines=engines,
        engine_href=engine_href,
        sentence=level_sentence,
        levels=[level for level in LEVELS if any(release.standing(level) for release in newest)],
        families=sorted({family for release in newest for family in release.families}),
        verdicts=_verdicts(newest),
        worst_href=_worst_href,
        meanings=MEANINGS,
    )


def _engine(one: EngineStatus, renderer: Renderer) -> str:
    return renderer.page(
        "status_engine.html.j2",
        engine_href(one.engine),
        one=one,
        sentence=level_sentence,
        badge=badge_stem(one.engine),
        picture=base64.b64encode(svg(one.badge).encode("utf-8", "replace")).decode(),
        commands=[(standing, _command(one, standing)) for standing in one.newest.standings],
        chart=_chart(one.releases),
        most=_MOST,
        verdicts=_verdicts(one.releases),
        worst_href=_worst_href,
        page_of=_case_href,
        meanings=MEANINGS,
    )


def _cases(one: EngineStatus, renderer: Renderer) -> Iterator[tuple[str, str]]:
    """A page for each case that the engine's page, or the first one, names."""
    for release in one.releases:
        named = {cell.worst.case for cell in release.families.values() if cell.worst}
        named |= {result.case for result in release.unexpected if release is one.newest}
        named |= {moved.example for step in one.steps if step.new is release for moved in step.came}
        named |= {moved.example for step in one.steps if step.old is release for moved in step.went}
        above = ((f"{one.engine} {release.name}", engine_href(one.engine)),)
        for result in release.results:
            if result.case in named:
                here = _case_href(release, result.case)
                yield here, render_case(result, renderer, here=here, above=above)


def _case_href(release: Release, case: str) -> str:
    """The path of a case's page in a release."""
    return case_href(f"{case} {release.name}")


def _worst_href(release: Release, family: str) -> str:
    """The path of the page of a family's worst case; empty if all are right."""
    cell = release.families.get(family)
    return _case_href(release, cell.worst.case) if cell and cell.worst else ""


def _command(one: EngineStatus, standing: Standing) -> str:
    """The command that runs the cases of a level again."""
    options = next(map(options_of, one.newest.results), ())
    scenarios = (f"--scenario={name}" for name in standing.scenarios)
    return command_about("run", f"--engine={one.engine}", options, *scenarios)


def _verdicts(releases: Sequence[Release]) -> list[Verdict]:
    """The verdicts whose letters the cells of families have."""
    cells = [cell for release in releases for cell in release.families.values()]
    seen = {cell.worst.verdict if cell.worst else Verdict.EXACT for cell in cells}
    return [verdict for verdict in Verdict if verdict in seen]


def _chart(releases: Sequence[Release]) -> Chart:
    """Right and wrong cases of each release, as stacked bars."""
    scale = linear_scale(
        [max((release.decided for release in releases), default=0)],
        height=_HEIGHT,
        label=lambda value: f"{value:.0f}",
    )
    width, ticks = columns(len(releases))
    return Chart(
        key="releases",
        title="Right and wrong cases of each release",
        description="The numbers are in the table below.",
        height=_HEIGHT,
        x_name="",
        y_name="cases",
        x_ticks=tuple(Tick(tick.at, releases[int(tick.label)].name) for tick in ticks),
        y_ticks=scale.ticks,
        bars=tuple(_bars(releases, width, scale.place)),
    )


def _bars(
    releases: Sequence[Release], width: float, place: Callable[[float], float]
) -> Iterator[Bar]:
    bottom, thick = _HEIGHT - BOTTOM, min(width * 0.7, 60)
    for index, release in enumerate(releases):
        left = LEFT + (index + 0.5) * width - thick / 2
        count = release.decided - release.right
        wrong, both = place(count), place(release.decided)
        yield Bar(left, wrong, thick, bottom - wrong, f"{release.name}: {count} wrong", "wrong")
        text = f"{release.name}: {release.right} right"
        yield Bar(left, both, thick, wrong - both, text, "right")
