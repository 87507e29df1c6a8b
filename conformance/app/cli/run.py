"""``conformance run``: the suite under pytest, with output of its own."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from rich.console import Console

from conformance.app.cli.options import (
    case_options,
    case_settings,
    checkpoint_options,
    cores,
    globs,
    jobs_option,
    json_lines,
    writable,
)
from conformance.app.cli.output_options import Output, output_options
from conformance.app.cli.progress import Progress
from conformance.app.cli.pytest_call import call_pytest
from conformance.app.pytest_plugin.options import TIMEOUT_SECONDS, Settings
from conformance.app.pytest_plugin.setup import make_setup
from conformance.core.verdict import CaseResult
from conformance.report import Outcome
from conformance.report.jsonl import write_lines
from conformance.report.pages.material import Material, merged
from conformance.report.pages.place import check_place
from conformance.report.pages.site import write_site
from conformance.run.coverage import take_inventory
from conformance.run.registry import Registry
from conformance.run.selection import DTYPES
from conformance.tools.checkpoints.given import Given


@click.command("run")
@globs("engine", "Engines to run; may be repeated. Default: mlx_lm and mlx_vlm.")
@globs("family", "Model families to run, for example 'qwen3*'; may be repeated. Default: all.")
@globs("scenario", "Scenarios to run; may be repeated. Default: all that an engine can express.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(DTYPES),
    help="Working dtype; may be repeated. Default: float32, which separates defects from rounding "
    "best.",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Seed of weights and prompts; may be repeated. Default: 0.",
)
@jobs_option(
    "Worker processes. 'auto': one for each core. 1: no workers, all in this process; "
    "a model that crashes then ends the run."
)
@json_lines(
    "Write the results as JSON lines, one for each case. An interrupted run leaves "
    "FILE.partial instead."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write pages there that open from disk, index.html first; also of an interrupted run. A "
    "report that is there already is replaced.",
)
@click.option(
    "-x", "--exitfirst", is_flag=True, help="Stop at the first verdict that is not expected."
)
@click.option(
    "--shard",
    default="",
    metavar="K/N",
    help="Run only the K-th of N parts, for example 2/4. A family stays in one of them; all of "
    "them together are the whole run.",
)
@output_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="A case that takes longer gets the verdict 'hang'. 0: no limit.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0),
    metavar="GB",
    help="A worker process that takes more is stopped, and its case gets the verdict 'crash'. "
    "Default: its part of 80 % of the machine's memory, but at least 2 GiB. 0: no limit.",
)
@click.option(
    "--no-oracle-cache",
    is_flag=True,
    help="Make all single streams and their noise anew, and store none. Default: those of tiny "
    "families are kept in mlx-conformance in the user's cache.",
)
@click.option(
    "--golden",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Compare a checkpoint's single streams and batches with its golden in this folder of "
    "yours; the first run writes it.",
)
@checkpoint_options
@case_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    scenarios: tuple[str, ...],
    dtypes: tuple[str, ...],
    seeds: tuple[int, ...],
    jobs: int | None,
    json_file: Path | None,
    report: Path | None,
    exitfirst: bool,
    shard: str,
    output: Output,
    timeout: float,
    memory: float | None,
    no_oracle_cache: bool,
    family_files: tuple[Path, ...],
    expectations: Path | None,
    no_expectations: bool,
    checkpoint: Given | None,
) -> None:
    """Run cases and judge each against its single stream.

    A case is one model family decoded by one engine in one scenario. Exit code: 0 if every
    verdict is the expected one, 1 if not (also for a model module that no family covers, and for
    an expectation that matches nothing), 2 for a mistake in the options or an interruption.
    """
    if report is not None:
        check_place(report)
    settings = case_settings(
        engines=engines,
        families=families,
        scenarios=scenarios,
        dtypes=dtypes,
        seeds=tuple(str(seed) for seed in seeds),
        json=writable(json_file, "--json") if json_file else None,
        timeout=timeout,
        shard=shard,
        memory=memory,
        oracle_cache=not no_oracle_cache,
        family_files=family_files,
        expectations=expectations,
        no_expectations=no_expectations,
        checkpoint=checkpoint,
    )
    ctx.exit(_run(settings, jobs=jobs, exitfirst=exitfirst, output=output, report=report))


def _run(
    settings: Settings, *, jobs: int | None, exitfirst: bool, output: Output, report: Path | None
) -> int:
    """Run the suite and print what came of it; the exit code."""
    setup = make_setup(settings)
    for line in (*setup.notes, *setup.sweep()):
        click.echo(line, err=True)
    if not setup.cases:
        return _nothing(settings, output)
    workers = min(jobs or cores(), len({setup.group_of(case) for case in setup.cases}))
    in_process = jobs == 1
    console = Console(highlight=False)
    progress = Progress(console, output.verbosity)
    code, text = call_pytest(
        settings, workers=0 if in_process else workers, exitfirst=exitfirst, plugin=progress
    )
    outcome = progress.outcome()
    if code == pytest.ExitCode.USAGE_ERROR:
        code = int(pytest.ExitCode.INTERRUPTED)  # 2, as for every mistake in the options
    if progress.stopped_at_first:
        code = int(pytest.ExitCode.TESTS_FAILED)
    elif outcome is None or outcome.missing or not outcome.results:
        click.echo(text, err=True)
    if outcome is not None and outcome.results:
        output.finish(outcome, console, settings.rerun_options)
        if report is not None:
            _write_report(report, outcome.results, setup.registry)
    held = setup.hold_goldens()
    for line in (line for one in held for line in one.messages):
        click.echo(f"golden: {line}")
    return code or int(not all(one.good for one in held))


def _nothing(settings: Settings, output: Output) -> int:
    """What is left to do of a shard where there are fewer families than shards."""
    click.echo(f"shard {settings.shard} has no cases: there are fewer families than shards")
    if settings.json:
        write_lines(settings.json, ())
    output.write_junit(Outcome(()))
    return 0


def _write_report(folder: Path, results: tuple[CaseResult, ...], registry: Registry) -> None:
    found = merged([results])
    write_site(folder, Material(found, take_inventory(registry, found)))
    click.echo(f"report: {folder / 'index.html'}")
