"""Writes the pages of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import conformance
from conformance.report.cascades import by_case
from conformance.report.explanation import encode
from conformance.report.pages import (
    comparison_page,
    costs_page,
    matrix_page,
    mutants_page,
    overview,
    power_page,
    servers_page,
    trend_page,
)
from conformance.report.pages.case_page import render_case
from conformance.report.pages.environment import Page, case_href, make_environment
from conformance.report.pages.material import Material
from conformance.report.pages.place import MARK, whole_folder

EXPLAINED = "explained/explanations.jsonl"
"""The pages' data on where cases begin to fail, for ``conformance report --explained``."""


def write_site(folder: Path, material: Material) -> int:
    """Write the report, completely or not at all; replace an older report.

    Returns: the number of pages.

    Raises:
        ReportError: the folder holds other files, or it cannot be written.
    """
    with whole_folder(folder) as new:
        return _write(new, material)


def _write(folder: Path, material: Material) -> int:
    for name, text in _files(material):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        # Texts of results may contain half of a surrogate pair, which can't be encoded.
        path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    for asset in resources.files("conformance.report.pages").joinpath("assets").iterdir():
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / asset.name).write_bytes(asset.read_bytes())
    return sum(1 for _ in folder.rglob("*.html"))


def _files(material: Material) -> Iterator[tuple[str, str]]:
    """Each file's name and text."""
    environment = make_environment()
    pages = navigation(material)
    results, inventory = material.results, material.inventory
    common = {"pages": pages}
    yield overview.HERE, overview.render_overview(material, environment, **common)
    yield matrix_page.HERE, matrix_page.render_matrix(results, inventory, environment, **common)
    causes = by_case(material.cascades)
    for result in results:
        if matrix_page.has_page(result):
            page = render_case(
                result,
                environment,
                cause=causes.get(result.case),
                explanation=material.explanations.get(result.case),
                script=material.scripts.get(result.case),
                **common,
            )
            yield case_href(result.case), page
    if material.costs:
        yield costs_page.HERE, costs_page.render_costs(material.costs, environment, **common)
    if material.servers:
        yield from servers_page.render_servers(material.servers, environment, **common)
    if material.trials:
        yield power_page.HERE, power_page.render_power(material.trials, environment, **common)
    if material.mutants:
        yield (
            mutants_page.HERE,
            mutants_page.render_mutants(material.mutants, environment, **common),
        )
    if material.before:
        page = comparison_page.render_comparison(material.before, results, environment, **common)
        yield comparison_page.HERE, page
    if material.runs:
        yield trend_page.HERE, trend_page.render_trend(material.runs, environment, **common)
    if material.explanations:
        lines = (encode(explanation) for explanation in material.explanations.values())
        yield EXPLAINED, "".join(f"{line}\n" for line in lines)
    about = {
        "format": "mlx-conformance report",
        "version": conformance.__version__,
        "cases": len(results),
        "unexpected": sum(not result.expected for result in results),
    }
    yield MARK, json.dumps(about, indent=2) + "\n"


def navigation(material: Material) -> tuple[Page, ...]:
    """The pages of the report, without those of cases."""
    pages = [Page(overview.HERE, "Overview"), Page(matrix_page.HERE, "Matrix")]
    if material.costs:
        pages.append(Page(costs_page.HERE, "Costs"))
    if material.servers:
        pages.append(Page(servers_page.HERE, "Servers"))
    if material.trials:
        pages.append(Page(power_page.HERE, "Faults"))
    if material.mutants:
        pages.append(Page(mutants_page.HERE, "Mutants"))
    if material.before:
        pages.append(Page(comparison_page.HERE, "Comparison"))
    if material.runs:
        pages.append(Page(trend_page.HERE, "Trend"))
    return tuple(pages)
