"""The cost of work by engine; each count links to its case."""

from __future__ import annotations

import jinja2

from conformance.report.cost_table import CostTable
from conformance.report.pages.environment import Page, render_page
from conformance.report.pages.matrix_page import has_page

HERE = "costs.html"


def render_costs(
    found: CostTable, environment: jinja2.Environment, *, pages: tuple[Page, ...]
) -> str:
    """The page's text."""
    return render_page(
        environment, "costs.html.j2", here=HERE, pages=pages, found=found, has_page=has_page
    )
