"""``conformance run``: run the suite under pytest, with the project's own output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from conformance.app.cli.auto_explain import EXPLAIN_SECONDS, FIRST_SECONDS
from conformance.app.cli.cluster_option import cluster_option
from conformance.app.cli.lazy_group import FIRST, GroupedCommand
from conformance.app.cli.options import (
    EXISTING_FILE,
    SECONDS,
    case_options,
    checkpoint_options,
    jobs_option,
    library_path_option,
    settings_options,
)
from conformance.app.cli.output_options import Output, output_options
from conformance.app.cli.outputs import report_place, writable
from conformance.app.cli.reuse import Chosen, reuse_options
from conformance.app.cli.server_options import server_options
from conformance.app.cli.suite_run import SuiteRun
from conformance.app.run_settings import settings_of
from conformance.report.worsening import Base

_GROUPS = {
    FIRST: (
        *("--engine", "--family", "--scenario", "--tier", "--jobs", "--json", "--report"),
        *("--changed", "--last-failed", "--library-path"),
    ),
    "Select": ("--dtype", "--seed", "--shard", "--exitfirst"),
    "Reuse": ("--fresh", "--since", "--no-oracle-cache"),
    "Output": ("--quiet", "--verbose", "--durations", "--junit", "--explain-seconds", "--against"),
    "Known defects": ("--expectations", "--no-expectations", "--no-mends"),
    "Your own families and engines": ("--plugin", "--family-file"),
    "A real checkpoint": (
        *("--model", "--prompts", "--golden", "--cache-dir", "--trust-remote-code", "--force"),
    ),
    "A running server": ("--url", "--remote", "--requests", "--not-offered"),
    "Machine": ("--timeout", "--memory", "--devices", "--cluster"),
}


@click.command("run", cls=GroupedCommand, groups=_GROUPS)
@settings_options("engine", "family", "scenario", "dtype", "seed")
@jobs_option(
    "Worker processes. 'auto': one for each core, or two if all cases are of servers that the run "
    "starts. 1: no workers; a model that crashes then ends the run."
)
@settings_options("json")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write pages that open from disk into this folder, index.html first, also after an "
    "interruption. They replace an older report.",
)
@click.option(
    "--explain-seconds",
    type=SECONDS,
    metavar="SECONDS",
    help="Time limit for explaining the lowest new failure of each family; one of several gets at "
    f"most half. Findings then say where they begin. Default: {EXPLAIN_SECONDS:.0f} with --report, "
    f"else {FIRST_SECONDS:.0f} for the first failure alone. 0: explain nothing.",
)
@click.option(
    "-x", "--exitfirst", is_flag=True, help="Stop at the first verdict that is not expected."
)
@settings_options("shard", "tier")
@click.option(
    "--against",
    type=EXISTING_FILE,
    metavar="BASE.jsonl",
    help="Results of an earlier run (--json): list and fail only what is worse now. Known defects "
    "and earlier failures do not count.",
)
@reuse_options
@output_options
@settings_options("timeout", "memory", "devices", "no-oracle-cache")
@click.option(
    "--golden",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Compare a checkpoint's single streams and batches with its golden in this folder; the "
    "first run writes it.",
)
@cluster_option
@server_options(lambda given: given["engines"])
@checkpoint_options
@settings_options("no-mends")
@case_options
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    jobs: int | None,
    json: Path | None,
    report: Path | None,
    explain_seconds: float | None,
    exitfirst: bool,
    chosen: Chosen,
    against: Path | None,
    output: Output,
    cluster: str | None,
    **given: Any,
) -> None:
    """Run cases and judge each against its single stream.

    A case is one model family decoded by one engine in one scenario. Exit code: 0 if every verdict
    is the expected one; 1 if not, or if a model module has no family, an expectation matches
    nothing, or a case that was not rerun had an unexpected verdict in its last run; 2 for a mistake
    in the options or an interruption; 5 if nothing was run and some cases have no result yet; 70 if
    the run's process ended too early. With --against: 1 if a case is worse than in that run, or was
    proved there and is not now.
    """
    began = time.perf_counter()
    if report is not None:
        report_place(report, "--report")
    if against is not None and exitfirst:
        raise click.UsageError("--against and --exitfirst: choose one of them")
    base = Base.read(against) if against else None
    settings = settings_of({**given, "json": writable(json, "--json") if json else None})
    given_seconds = EXPLAIN_SECONDS if explain_seconds is None and report else explain_seconds
    run = SuiteRun(
        settings,
        chosen,
        jobs=jobs,
        exitfirst=exitfirst,
        output=output,
        report=report,
        explain_seconds=given_seconds,
        began=began,
        base=base,
        cluster=cluster,
    )
    ctx.exit(run())
