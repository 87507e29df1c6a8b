"""The matrix page, families x scenarios: the data of every cell, and the page around the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from conformance.core.inventory import Inventory
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.matrix import GLYPHS
from conformance.report.message import worst
from conformance.report.pages.environment import (
    MEANINGS,
    Renderer,
    brief,
    case_href,
    shown,
)

HERE = "matrix.html"

_MOST_WORDS = 300  # characters of a finding; the case's page shows all of it


def render_matrix(
    results: Sequence[CaseResult],
    inventory: Inventory,
    renderer: Renderer,
) -> str:
    """The page's text, with the data as JSON, from which ``assets/matrix.js`` makes the table."""
    data = matrix_data(results, inventory)
    seen = {result.verdict for result in results}
    return renderer.page(
        "matrix.html.j2",
        HERE,
        data=data,
        missing=any(cell == 0 for row in data["rows"] for cell in row["cells"]),
        seen=[verdict for verdict in Verdict if verdict in seen],
        choices={
            key: sorted({value for row in data["rows"] for value in _listed(row[key])})
            for key in ("engine", "dtype", "caches", "modalities")
        },
    )


def has_page(result: CaseResult) -> bool:
    """Whether a case has its own page; an exact case has none."""
    return not (result.verdict.good and result.expected)


def matrix_data(results: Sequence[CaseResult], inventory: Inventory) -> dict[str, Any]:
    """The data for the page's script, in compact form.

    A row is a family under one engine and dtype. Its ``cells`` hold for each scenario the cases
    that were run (one for each seed), worst first, or 0 if the scenario applies but was
    not run, or ``null``; a case is the list of ``CASE``'s fields, a verdict an index into
    ``verdicts``.
    """
    rank = {name: index for index, name in enumerate(inventory.scenarios)}
    scenarios = sorted({r.scenario for r in results}, key=lambda n: (rank.get(n, len(rank)), n))
    groups: dict[tuple[str, str, str], dict[str, list[CaseResult]]] = {}
    for result in results:
        row = groups.setdefault((result.family, result.engine, result.dtype), {})
        row.setdefault(result.scenario, []).append(result)
    return {
        "verdicts": [
            {"name": verdict.value, "glyph": GLYPHS[verdict], "means": MEANINGS[verdict]}
            for verdict in Verdict
        ],
        "fields": list(CASE),
        "scenarios": list(map(shown, scenarios)),
        "rows": [_row(key, groups[key], scenarios, inventory) for key in sorted(groups)],
    }


CASE = (
    "seed",
    "verdict",
    "expected",
    "difference",
    "noise",
    "ratio",
    "seconds",
    "known",
    "what",
    "page",
    "mended",
)
"""The fields of a case in the data; trailing empty ones are left out."""


def _row(
    key: tuple[str, str, str],
    cells: dict[str, list[CaseResult]],
    scenarios: Sequence[str],
    inventory: Inventory,
) -> dict[str, Any]:
    family, engine, dtype = key
    about = inventory.about(engine, family)
    applicable = inventory.applicable.get(engine, {}).get(family, ())
    missing = dict.fromkeys(applicable, 0)
    return {
        "family": shown(family),
        "engine": shown(engine),
        "dtype": shown(dtype),
        "module": about.module,
        "caches": about.caches,
        "modalities": about.modalities,
        "cells": [_cell(cells[name]) if name in cells else missing.get(name) for name in scenarios],
    }


def _cell(cases: list[CaseResult]) -> list[list[Any]]:
    worst_first = sorted(cases, key=lambda r: (r.expected, -r.verdict.severity, r.seed))
    return [_case(result) for result in worst_first]


def _case(result: CaseResult) -> list[Any]:
    finding = worst(result)
    values: list[Any] = [
        result.seed,
        result.verdict.severity,
        int(result.expected),
        _short(result.max_abs_diff),
        _short(result.noise),
        _short(result.ratio),
        _short(result.seconds),
        result.known and shown(result.known),
        shown(brief(finding.what, _MOST_WORDS)) if finding and has_page(result) else None,
        case_href(result.case) if has_page(result) else None,
        1 if result.right_once_mended else None,
    ]
    while values[-1] is None:
        values.pop()
    return values


def _short(value: float | None) -> float | None:
    """Three digits; ``None`` if not finite, because JSON has no such number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value
