"""``conformance summary``: result files as what a CI system shows."""

from __future__ import annotations

import os
from pathlib import Path

import click

from conformance.app.cli.choices import EXISTING_FILE, EXISTING_FOLDER, writable
from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError, ResultError
from conformance.core.verdict import CaseResult
from conformance.report import Outcome
from conformance.report.annotations import error_annotations
from conformance.report.badge import LABEL, badge, endpoint_json, svg
from conformance.report.comparison import Comparison, compare
from conformance.report.job_summary import MOST_BYTES, job_summary
from conformance.report.jsonl import read_results, write_lines
from conformance.report.junit import junit_xml
from conformance.scenarios import LADDER

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("summary")
@click.argument("files", type=EXISTING_FILE, nargs=-1, required=True, metavar="RESULTS...")
@click.option(
    "--against",
    type=EXISTING_FILE,
    multiple=True,
    metavar="OLD",
    help="Results of an older run: what changed comes first. May be repeated.",
)
@click.option(
    "--to",
    type=_FILE,
    metavar="FILE",
    help=f"Append the Markdown there. Default: the file that ${STEP_SUMMARY} names, else print it.",
)
@click.option(
    "--annotations",
    "annotated",
    is_flag=True,
    help="Print failures as at most ten errors of a GitHub step, one for each family and engine.",
)
@click.option(
    "--badge",
    "badge_folder",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Write badge.svg and badge.json, which is for shields' endpoint badges, there.",
)
@click.option("--label", default=LABEL, show_default=True, help="The left half of the badge.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the cases as JUnit XML.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write all results as one.")
@click.option(
    "--whole",
    is_flag=True,
    help="The files are all shards of a whole run: an expectation that met no case is a problem.",
)
@click.option(
    "--expectations",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="With --whole: the folder of the run, instead of the project's own.",
)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    against: tuple[Path, ...],
    to: Path | None,
    annotated: bool,
    badge_folder: Path | None,
    label: str,
    junit: Path | None,
    json_file: Path | None,
    whole: bool,
    expectations: Path | None,
) -> None:
    """Tell a CI system what result files of `conformance run --json` come to.

    Several files, such as those of shards, count as one run. Exit code: 0 if every verdict is the
    expected one and nothing is worse than in OLD, else 1.
    """
    if to is None and (step := os.environ.get(STEP_SUMMARY)):
        to = Path(step)
    to = writable(to, "--to") if to else None
    junit = writable(junit, "--junit") if junit else None
    json_file = writable(json_file, "--json") if json_file else None
    results = _joined(files)
    old = _joined(against)
    found = compare(old, results) if old else None
    stale = load_expectations(expectations).stale(results, whole=True) if whole else ()
    outcome = Outcome(results, tuple(s.name for s in LADDER), stale)
    if annotated:
        for line in error_annotations(results, stale):
            click.echo(line)
    if junit:
        write_lines(junit, junit_xml(results, stale).splitlines())
    if json_file:
        write_lines(json_file, _lines(files))
    if badge_folder:
        shown = badge(results, label)
        write_lines(badge_folder / "badge.svg", svg(shown).splitlines())
        write_lines(badge_folder / "badge.json", endpoint_json(shown).splitlines())
    _tell(outcome, found, to)
    ctx.exit(0 if outcome.ok and not (found and found.regressed) else 1)


def _joined(files: tuple[Path, ...]) -> tuple[CaseResult, ...]:
    """The results of all files, of which some may have none.

    Raises:
        ResultError: there is none in any, or a case is there twice.
    """
    found: dict[str, CaseResult] = {}
    for path in files:
        for result in read_results(path):
            if result.case in found:
                raise ResultError(f"{path}: the case {result.case} is there twice")
            found[result.case] = result
    if files and not found:
        raise ResultError(f"no results in {', '.join(map(str, files))}")
    return tuple(found.values())


def _lines(files: tuple[Path, ...]) -> list[str]:
    return [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def _tell(outcome: Outcome, found: Comparison | None, to: Path | None) -> None:
    """Append the summary to a file, of which other commands of the step may have written some."""
    if to is None:
        click.echo(job_summary(outcome, found), nl=False)
        return
    try:
        there = to.stat().st_size if to.exists() else 0
        text = job_summary(outcome, found, most_bytes=max(MOST_BYTES - there, 0))
        with to.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConformanceError(f"--to: {to} cannot be written: {error.strerror}") from error
