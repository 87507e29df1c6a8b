"""``conformance run``: the suite under pytest, with output of its own."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from rich.console import Console

from conformance.cli.choices import JOBS, case_options, case_settings, cores, writable
from conformance.cli.progress import Progress
from conformance.cli.pytest_call import call_pytest
from conformance.pytest_plugin.options import TIMEOUT_SECONDS, Settings
from conformance.pytest_plugin.setup import make_setup
from conformance.report import summary
from conformance.selection import DTYPES


@click.command("run")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="GLOB",
    help="Engines to run; may be repeated. Default: mlx_lm and mlx_vlm.",
)
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="GLOB",
    help="Model families to run, for example 'qwen3*'; may be repeated. Default: all.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="GLOB",
    help="Scenarios to run; may be repeated. Default: all that an engine can express.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(DTYPES),
    help="Working dtype; may be repeated. Default: float32, which tells defects from rounding "
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
@click.option(
    "--jobs",
    type=JOBS,
    default="auto",
    show_default=True,
    metavar="auto|N",
    help="Worker processes. 'auto': one for each core. 1: no workers, all in this process; "
    "a model that crashes then ends the run.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the results as JSON lines, one for each case. An interrupted run leaves "
    "FILE.partial instead.",
)
@click.option(
    "-x", "--exitfirst", is_flag=True, help="Stop at the first verdict that is not expected."
)
@click.option(
    "--durations",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="How many of the slowest cases to list.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="A case that takes longer gets the verdict 'hang'. 0: wait for ever.",
)
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
    exitfirst: bool,
    durations: int,
    timeout: float,
    family_files: tuple[Path, ...],
    expectations: Path | None,
    no_expectations: bool,
) -> None:
    """Run cases and judge each against its single stream.

    A case is one model family decoded by one engine in one scenario. Exit code: 0 if every
    verdict is the expected one, 1 if not (also for a model module that no family covers, and for
    an expectation that matches nothing), 2 for a mistake in the options or an interruption.
    """
    settings = case_settings(
        engines=engines,
        families=families,
        scenarios=scenarios,
        dtypes=dtypes,
        seeds=tuple(str(seed) for seed in seeds),
        json=writable(json_file, "--json") if json_file else None,
        timeout=timeout,
        family_files=family_files,
        expectations=expectations,
        no_expectations=no_expectations,
    )
    ctx.exit(_run(settings, jobs=jobs, exitfirst=exitfirst, durations=durations))


def _run(settings: Settings, *, jobs: int | None, exitfirst: bool, durations: int) -> int:
    """Run the suite and print what came of it; the exit code."""
    setup = make_setup(settings)
    workers = min(jobs or cores(), len({setup.group_of(case) for case in setup.cases}))
    in_process = jobs == 1
    console = Console(highlight=False)
    progress = Progress(console)
    code, output = call_pytest(
        settings, workers=0 if in_process else workers, exitfirst=exitfirst, plugin=progress
    )
    outcome = progress.outcome()
    if progress.stopped_at_first:
        code = int(pytest.ExitCode.TESTS_FAILED)
    elif outcome is None or outcome.missing:
        click.echo(output, err=True)
    if outcome is not None:
        options = settings.rerun_options
        text = summary(outcome, width=console.width, durations=durations, options=options)
        console.print()
        console.print(text, soft_wrap=True)
    return code
