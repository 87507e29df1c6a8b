"""Writes result tables into Markdown files: what each server does, the cost of each engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError, ReportError
from conformance.core.user_files import read_text
from conformance.core.verdict import CaseResult
from conformance.report.cost_table import cost_table, with_costs
from conformance.report.jsonl import write_lines
from conformance.report.servers import compatibility, with_table
from conformance.run.coverage import take_inventory


def write_tables(servers: Path | None, costs: Path | None, results: Sequence[CaseResult]) -> None:
    """Write both tables, each if its path is given.

    Raises:
        ConformanceError: no result belongs in a table, or its file cannot be written.
    """
    _write_servers(servers, results)
    _write_costs(costs, results)


def _write_servers(path: Path | None, results: Sequence[CaseResult]) -> None:
    """Write the table of servers, if wanted; if the file has marks for it, between them.

    Raises:
        ConformanceError: no result is from a server.
    """
    if path is None:
        return
    found = compatibility(results, take_inventory(registry_of(), results))
    if found is None:
        raise ConformanceError("--servers: none of the results is of a server")
    _write(path, lambda text: with_table(text, found))


def _write_costs(path: Path | None, results: Sequence[CaseResult]) -> None:
    """Write the table of contract counts in the same way.

    Raises:
        ConformanceError: no result has counts.
    """
    if path is None:
        return
    found = cost_table(results)
    if found is None:
        raise ConformanceError("--costs: none of the results counts what work costs")
    _write(path, lambda text: with_costs(text, found))


def _write(path: Path, filled: Callable[[str], str]) -> None:
    text = read_text(path, ReportError) if path.exists() else ""
    write_lines(path, filled(text).splitlines())
