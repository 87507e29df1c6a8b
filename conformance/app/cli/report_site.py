"""``conformance report --site``: the status of engines over their releases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from conformance.app.cli.outputs import report_place
from conformance.app.cli.printing import say
from conformance.app.cli.registries import registry_of
from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.derived import derived
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseResult
from conformance.report.jsonl import read_results
from conformance.report.pages.status_site import write_status
from conformance.run.coverage import defects_upstream

_TAKEN = ("files", "status_folder", "expectations", "family_files")


def write_site_of(
    ctx: click.Context,
    folder: Path,
    files: Sequence[Path],
    expectations: Path | None,
    family_files: tuple[Path, ...],
) -> None:
    """Write the site from result files of any runs.

    A wrong result is a known defect if an entry explains it, whatever its file says: results of
    ``conformance releases`` are judged without entries.

    Raises:
        ConformanceError: an option about one run is given, too, or a file or an entry is not valid.
    """
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
        if given and parameter.name not in _TAKEN:
            raise ConformanceError(
                f"--site is about several runs, and {parameter.opts[0]} about one; give them to "
                "two commands"
            )
    report_place(folder, "--site")
    results = [result for path in files for result in read_results(path)]
    if not results:
        raise ConformanceError(f"no results in {', '.join(map(str, files))}")
    registry = registry_of(family_files=family_files)
    known = load_expectations(expectations, registry.expectations)
    judged = [_judged(result, known.apply(result)) for result in derived(results, known)]
    count = write_status(folder, judged, defects_upstream(registry, known))
    say(f"{count} pages: {folder / 'index.html'}")


def _judged(result: CaseResult, by_entries: CaseResult) -> CaseResult:
    """An unexpected result by the entries, if they explain it."""
    return by_entries if by_entries.expected and not result.expected else result
