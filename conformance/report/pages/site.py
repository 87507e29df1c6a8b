"""Writes the pages of a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path

import conformance
from conformance.core.verdict import encode
from conformance.report.cascades import by_case
from conformance.report.pages import (
    comparison_page,
    defects_page,
    matrix_page,
    mutants_page,
    overview,
    power_page,
)
from conformance.report.pages.case_page import render_case
from conformance.report.pages.environment import Page, Renderer, case_href
from conformance.report.pages.material import Material
from conformance.report.pages.matrix_page import has_page
from conformance.report.pages.place import MARK, whole_folder

_ASSETS = (
    "case.css",
    "copy.js",
    "matrix.css",
    "matrix.js",
    "overview.css",
    "panel.js",
    "style.css",
    "theme.js",
)
COSTS, SERVERS = "costs.html", "servers.html"
EXPLAINED = "explained/explanations.jsonl"
"""The pages' data on where cases begin to fail, for ``conformance report --explained``."""


def write_site(folder: Path, material: Material) -> int:
    """Write the report, completely or not at all; replace an older report.

    Returns: the number of pages.

    Raises:
        ReportError: the folder holds other files, or it cannot be written.
    """
    with whole_folder(folder) as new:
        return write_files(new, _files(material), _ASSETS)


def write_files(folder: Path, files: Iterable[tuple[str, str]], assets: Iterable[str]) -> int:
    """Write texts by their names, and these assets; return the number of pages."""
    for name, text in files:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        # Texts of results may contain half of a surrogate pair, which can't be encoded.
        path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    (folder / "assets").mkdir(exist_ok=True)
    there = resources.files("conformance.report.pages").joinpath("assets")
    for name in assets:
        (folder / "assets" / name).write_bytes(there.joinpath(name).read_bytes())
    return sum(1 for _ in folder.rglob("*.html"))


def _files(material: Material) -> Iterator[tuple[str, str]]:
    """Each file's name and text."""
    there = _pages(material)
    anchors = {e: one.defect.id for one in material.defects_shown for e in one.defect.entries}
    renderer = Renderer(tuple(page for page, _ in there), defects=anchors)
    for page, render in there:
        yield page.href, render(renderer)
    causes = by_case(material.cascades)
    for result in filter(has_page, material.results):
        yield (
            case_href(result.case),
            render_case(
                result,
                renderer,
                cause=causes.get(result.case),
                explanation=material.explanations.get(result.case),
                script=material.scripts.get(result.case),
            ),
        )
    for index, name in enumerate(material.servers.servers if material.servers else ()):
        yield server_href(name), _servers(material, renderer, index)
    if material.explanations:
        lines = (encode(explanation) for explanation in material.explanations.values())
        yield EXPLAINED, "".join(f"{line}\n" for line in lines)
    about = {
        "format": "mlx-conformance report",
        "version": conformance.__version__,
        "cases": len(material.results),
        "unexpected": sum(not result.expected for result in material.results),
    }
    yield MARK, json.dumps(about, indent=2) + "\n"


def _pages(given: Material) -> list[tuple[Page, Callable[[Renderer], str]]]:
    """The pages for which there is data, without those of cases, in the order of the navigation."""
    results = given.results
    every = (
        (overview.HERE, "Overview", True, lambda to: overview.render_overview(given, to)),
        (
            matrix_page.HERE,
            "Matrix",
            True,
            lambda to: matrix_page.render_matrix(results, given.inventory, to),
        ),
        (
            defects_page.HERE,
            "Defects",
            given.defects_shown,
            lambda to: defects_page.render_defects(given.defects_shown, to),
        ),
        (
            COSTS,
            "Costs",
            given.costs,
            lambda to: to.page("costs.html.j2", COSTS, found=given.costs, has_page=has_page),
        ),
        (SERVERS, "Servers", given.servers, lambda to: _servers(given, to)),
        (
            power_page.HERE,
            "Faults",
            given.trials,
            lambda to: power_page.render_power(given.trials, to),
        ),
        (
            mutants_page.HERE,
            "Mutants",
            given.mutants,
            lambda to: mutants_page.render_mutants(given.mutants, to),
        ),
        (
            comparison_page.HERE,
            "Comparison",
            given.before,
            lambda to: comparison_page.render_comparison(given.before, results, to),
        ),
    )
    return [(Page(href, label), render) for href, label, data, render in every if data]


def server_href(name: str) -> str:
    """The path of a server's own page."""
    return f"server-{name}.html"


def _servers(material: Material, renderer: Renderer, server: int | None = None) -> str:
    """What each server does; with ``server``, an index, the evidence of each family for it."""
    assert material.servers is not None, "only called where servers were run"
    here = SERVERS if server is None else server_href(material.servers.servers[server])
    return renderer.page(
        "servers.html.j2", here, found=material.servers, server=server, server_href=server_href
    )
