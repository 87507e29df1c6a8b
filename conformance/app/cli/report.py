"""``conformance report``: summaries of result files for a CI system, and pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from conformance.app.cli.auto_explain import with_explanations
from conformance.app.cli.options import (
    EXISTING_FILE,
    EXISTING_FOLDER,
    SECONDS,
    cores,
    family_files_option,
    power_files_option,
)
from conformance.app.cli.output_options import Output
from conformance.app.cli.outputs import places, reads, report_place, writable
from conformance.app.cli.printing import say, say_command
from conformance.app.cli.registries import registry_of
from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.derived import derived, unknown_ids
from conformance.core.errors import ConformanceError, ReportError
from conformance.core.user_files import read_text
from conformance.core.verdict import CaseResult
from conformance.report import Outcome
from conformance.report.badge import LABEL, Badge, badge, endpoint_json, svg
from conformance.report.comparison import Comparison, compare
from conformance.report.cost_table import cost_table, with_costs
from conformance.report.job_summary import MOST_BYTES, error_annotations, job_summary
from conformance.report.joining import read_joined
from conformance.report.jsonl import read_results, write_lines, write_results
from conformance.report.mutants import read_mutants
from conformance.report.pages.material import Material, merged, read_explanations, read_scripts
from conformance.report.pages.site import write_site
from conformance.report.pages.status_site import write_status
from conformance.report.servers import compatibility, with_table
from conformance.report.trials import read_trials
from conformance.run.coverage import defects_upstream, take_inventory
from conformance.scenarios import LADDER
from conformance.tools.releases.release_run import CACHES

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("report")
@click.argument("files", type=EXISTING_FILE, nargs=-1, required=True, metavar="RESULTS...")
@click.option(
    "--against",
    "--before",
    "against",
    type=EXISTING_FILE,
    multiple=True,
    metavar="OLD",
    help="Results of an older run: changes come first and get a page. May be repeated.",
)
@click.option(
    "--to",
    type=_FILE,
    metavar="FILE",
    help=f"Append the Markdown summary to FILE. Default: the file in ${STEP_SUMMARY}; if unset, it "
    "is printed, unless there are pages (--html).",
)
@click.option(
    "--annotations",
    "annotated",
    is_flag=True,
    help="Print findings as errors of a GitHub step: one for each cause, at most ten.",
)
@click.option(
    "--badge",
    "badge_folder",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Write badge.svg, and badge.json for shields' endpoint badges, into this folder.",
)
@click.option("--label", default=LABEL, show_default=True, help="Text of the badge's left half.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the cases as JUnit XML.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Merge all results into it.")
@click.option(
    "--whole",
    is_flag=True,
    help="The files are all shards of a whole run of the full tier: an expectation without a "
    "case is a problem.",
)
@click.option(
    "--expectations",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Folder of the run's expectations (known defects), instead of the project's own.",
)
@click.option(
    "--html",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write pages that open from disk into this folder, index.html first, replacing an older "
    "report.",
)
@click.option(
    "--site",
    "status_folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the status of engines over their releases into this folder, with a badge for each "
    "engine. RESULTS are then files of any runs, such as those of `conformance releases --json`: "
    "of a case's results in a release the newest counts.",
)
@power_files_option("Pages: add the output of `conformance audit power --json`")
@click.option(
    "--mutants",
    "mutant_files",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE",
    help="Pages: add the output of `conformance audit mutants --json`; may be repeated.",
)
@click.option(
    "--explained",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Folder of explanations: files of `conformance explain --json`, or the folder explained "
    "in the pages of `conformance run --report`. Findings and pages then name their origin.",
)
@click.option(
    "--explain-seconds",
    type=SECONDS,
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit to explain failures that --explained lacks, as `conformance run` does. Only "
    "failures with the installed versions of the libraries are explained.",
)
@click.option(
    "--scripts",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Pages: add the scripts of `conformance repro --out` in this folder; a case's page says "
    "how to name them. For scripts of known defects, which serve all their cases: docs/defects.",
)
@click.option(
    "--servers",
    "servers_file",
    type=_FILE,
    metavar="FILE",
    help="Write a Markdown table of what each server does; if FILE has marks for this table, "
    "between them.",
)
@click.option("--costs", "costs_file", type=_FILE, help="The same, for the cost of each engine.")
@family_files_option
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
    folder: Path | None,
    status_folder: Path | None,
    power_files: tuple[Path, ...],
    mutant_files: tuple[Path, ...],
    explained: Path | None,
    explain_seconds: float,
    scripts: Path | None,
    servers_file: Path | None,
    costs_file: Path | None,
    family_files: tuple[Path, ...],
) -> None:
    """Summarize result files of `conformance run --json` for CI, or write them as pages.

    Several files, such as shards, engines or dtypes, count as one run. Exit code: 0 if every
    verdict is the expected one, all shards of the run are there and nothing is worse than in OLD,
    else 1.

    \b
    conformance report results.jsonl --annotations --junit junit.xml
    conformance report today.jsonl --against yesterday.jsonl --html report
    conformance report releases/*.jsonl today.jsonl --site status
    """  # noqa: D301
    if status_folder is not None:
        write_site_of(ctx, status_folder, files, expectations, family_files)
        return
    to = to or (Path(step) if (step := os.environ.get(STEP_SUMMARY)) else None)
    json_file = writable(json_file, "--json") if json_file else None  # may be an input file
    reads((*files, *against, *power_files, *mutant_files))
    to, junit, servers_file, costs_file = places(
        (to, "--to"), (junit, "--junit"), (servers_file, "--servers"), (costs_file, "--costs")
    )
    _check_pages(folder, power_files, mutant_files, scripts)
    joined, old = read_joined(files), read_joined(against).results
    results, missing = _derived(joined.results, expectations, family_files), joined.missing
    found = compare(old, results, missing=missing) if old else None
    problems = (*joined.problems, *(_stale(results, expectations) if whole else ()))
    explanations = read_explanations(explained) if explained else {}
    scenarios = {scenario.name: scenario for scenario in LADDER}
    outcome = with_explanations(
        Outcome(results, tuple(scenarios), problems, missing=missing, explanations=explanations),
        scenarios,
        seconds=explain_seconds,
        jobs=cores(),
        options=[part for file in family_files for part in ("--family-file", str(file))],
    )
    for line in error_annotations(outcome.cascades, problems) if annotated else ():
        say_command(line)
    if json_file:
        write_results(json_file, results, joined.header)
    Output(junit=junit).write_junit(outcome)
    write_tables(servers_file, costs_file, results)
    if badge_folder:
        _write_badge(badge_folder, badge(results, label, missing, problems=len(problems)))
    _summarize(outcome, found, to, said=folder is None)
    if folder is not None:
        material = replace(
            _material(results, expectations, family_files),
            trials=read_trials(power_files),
            mutants=read_mutants(mutant_files),
            before=merged([old]) if old else (),
            explanations=outcome.explanations,
            missing=missing,
            problems=problems,
            scripts=read_scripts(scripts, results) if scripts else {},
        )
        say(f"{write_site(folder, material)} pages: {folder / 'index.html'}")
    ctx.exit(0 if outcome.ok and not (found and found.regressed) else 1)


def _material(
    results: tuple[CaseResult, ...], folder: Path | None, family_files: tuple[Path, ...]
) -> Material:
    """The results, what can be run here, and what is known to be wrong upstream."""
    registry = registry_of(family_files=family_files)
    known = load_expectations(folder, registry.expectations)
    ordered = merged([results])
    inventory = take_inventory(registry, ordered)
    return Material(ordered, inventory, defects=defects_upstream(registry, known))


def _check_pages(folder: Path | None, *of_pages: object) -> None:
    """Check that the pages can be written."""
    if folder is not None:
        report_place(folder, "--html")
    elif any(of_pages):
        raise ConformanceError(
            "--power, --mutants and --scripts add to the pages: name --html DIR, too"
        )


def _derived(
    results: tuple[CaseResult, ...], folder: Path | None, family_files: tuple[Path, ...]
) -> tuple[CaseResult, ...]:
    """The results, judged by the known defects; defects of plugins need the plugin.

    Raises:
        ConformanceError: the expectations, or a plugin, are not valid.
    """
    if not any(result.known for result in results):
        return results
    known = load_expectations(folder)
    if unknown_ids(results, known):
        also = registry_of(family_files=family_files).expectations
        known = load_expectations(folder, also)
    return derived(results, known)


def _stale(results: tuple[CaseResult, ...], folder: Path | None) -> tuple[str, ...]:
    """Report expectations without a case."""
    if partial := next((result.case for result in results if result.left_out), ""):
        raise ConformanceError(
            f"--whole: {partial} is not of the full tier, so that what met no case may only have "
            "been left out; give results of `conformance run --tier full`, or leave out --whole"
        )
    return load_expectations(folder).stale(results, whole=True)


def _write_badge(folder: Path, shown: Badge) -> None:
    write_lines(folder / "badge.svg", svg(shown).splitlines())
    write_lines(folder / "badge.json", endpoint_json(shown).splitlines())


def _summarize(outcome: Outcome, found: Comparison | None, to: Path | None, *, said: bool) -> None:
    """Append the summary to a file, which may hold output of other commands, or print it."""
    if to is None:
        if said:
            say(job_summary(outcome, found), nl=False)
        return
    try:
        there = to.stat().st_size if to.exists() else 0
        text = job_summary(outcome, found, most_bytes=max(MOST_BYTES - there, 0))
        with to.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConformanceError(f"--to: {to} cannot be written: {error.strerror}") from error


# Writes result tables into Markdown files: what each server does, the cost of each engine --------


def write_tables(servers: Path | None, costs: Path | None, results: Sequence[CaseResult]) -> None:
    """Write both tables, each if its path is given.

    Raises:
        ConformanceError: no result belongs in a table, or its file cannot be written.
    """
    if servers is not None:
        asked = compatibility(results, take_inventory(registry_of(), results))
        if asked is None:
            raise ConformanceError("--servers: none of the results is of a server")
        _write_between_marks(servers, partial(with_table, found=asked))
    if costs is not None:
        counted = cost_table(results)
        if counted is None:
            raise ConformanceError("--costs: none of the results counts what work costs")
        _write_between_marks(costs, partial(with_costs, found=counted))


def _write_between_marks(path: Path, filled: Callable[[str], str]) -> None:
    text = read_text(path, ReportError) if path.exists() else ""
    write_lines(path, filled(text).splitlines())


# ``conformance report --site``: the status of engines over their releases -------------------------

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
    # `conformance releases --json` writes those of cache classes next to the results.
    of_cases = [path for path in files if not path.name.endswith(CACHES)]
    results = [result for path in of_cases for result in read_results(path)]
    if not results:
        raise ConformanceError(f"no results in {', '.join(map(str, files))}")
    registry = registry_of(family_files=family_files)
    known = load_expectations(expectations, registry.expectations)
    pairs = [(result, known.apply(result)) for result in derived(results, known)]
    judged = [new if new.expected and not result.expected else result for result, new in pairs]
    count = write_status(folder, judged, defects_upstream(registry, known))
    say(f"{count} pages: {folder / 'index.html'}")
