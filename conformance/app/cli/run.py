"""``conformance run``: run the suite under pytest, with the project's own output."""

from __future__ import annotations

import time
from pathlib import Path

import click

from conformance.app.cli.auto_explain import EXPLAIN_SECONDS
from conformance.app.cli.cluster_option import cluster_option
from conformance.app.cli.numbers import GIGABYTES, SECONDS, SEED
from conformance.app.cli.options import (
    EXISTING_FILE,
    case_options,
    case_settings,
    checkpoint_options,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
    mends_option,
)
from conformance.app.cli.output_options import Output, output_options
from conformance.app.cli.outputs import report_place, writable
from conformance.app.cli.reuse import Chosen, reuse_options
from conformance.app.cli.server_options import server_options
from conformance.app.cli.suite_run import SuiteRun
from conformance.app.pytest_plugin.options import TIMEOUT_SECONDS
from conformance.core import devices as devices_of_run
from conformance.core.tier_names import TIERS, usual_tier
from conformance.report.worsening import Base
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
    help="Working dtype; may be repeated. Default: float32, which best separates defects from "
    "rounding.",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=SEED,
    metavar="N",
    help="Seed of weights and prompts; may be repeated. Default: 0.",
)
@jobs_option(
    "Worker processes. 'auto': one for each core. 1: no workers; a model that crashes then ends "
    "the run."
)
@json_lines(
    "Write the results as JSON lines, one for each case. An interrupted run leaves "
    "FILE.partial instead."
)
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
    "else 0: explain nothing.",
)
@click.option(
    "-x", "--exitfirst", is_flag=True, help="Stop at the first verdict that is not expected."
)
@click.option(
    "--shard",
    default="",
    metavar="K/N",
    help="Run only the K-th of N parts, for example 2/4. All cases of a family are in one part; "
    "the N parts together are the whole run.",
)
@click.option(
    "--tier",
    type=click.Choice(TIERS),
    help="How much of the ladder to run. quick: the fewest schedules that catch almost all that "
    "the ladder catches. default: each rung; scenarios that test the engine on one family of each "
    "kind. full: all. Default: full for named families and scenarios, else default.",
)
@click.option(
    "--against",
    type=EXISTING_FILE,
    metavar="BASE.jsonl",
    help="Results of an earlier run (--json): list and fail only what is worse now. Known defects "
    "and earlier failures do not count.",
)
@reuse_options
@output_options
@click.option(
    "--timeout",
    type=SECONDS,
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="A case that takes longer gets the verdict 'hang'. 0: no limit.",
)
@click.option(
    "--memory",
    type=GIGABYTES,
    metavar="GB",
    help="A worker process that exceeds this is killed, and its case gets the verdict 'crash'. "
    "Default: its part of 80 % of the machine's memory, but at least 2 GiB. 0: no limit.",
)
@click.option(
    devices_of_run.OPTION,
    callback=lambda ctx, param, value: devices_of_run.chosen(value) if value else (),  # noqa: ARG005
    metavar="N|LIST|all",
    help="NVIDIA GPUs to use: a number, a comma-separated list ('0,3', '2,'), or all. Each worker "
    "gets one of them in turn (CUDA_VISIBLE_DEVICES). Default: all workers use the first GPU.",
)
@click.option(
    "--no-oracle-cache",
    is_flag=True,
    help="Compute all single streams and their noise from scratch, and store none. Default: they "
    "are kept for tiny families, in mlx-conformance in the user's cache.",
)
@click.option(
    "--golden",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Compare a checkpoint's single streams and batches with its golden in this folder; the "
    "first run writes it.",
)
@cluster_option
@server_options
@checkpoint_options
@mends_option
@case_options
@library_path_option
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
    explain_seconds: float | None,
    exitfirst: bool,
    shard: str,
    tier: str | None,
    chosen: Chosen,
    against: Path | None,
    output: Output,
    timeout: float,
    memory: float | None,
    devices: tuple[str, ...],
    no_oracle_cache: bool,
    cluster: str | None,
    family_files: tuple[Path, ...],
    plugins: tuple[str, ...],
    expectations: Path | None,
    no_expectations: bool,
    no_mends: bool,
    checkpoint: Given | None,
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
    settings = case_settings(
        engines=engines,
        families=families,
        scenarios=scenarios,
        dtypes=dtypes,
        seeds=tuple(str(seed) for seed in seeds),
        json=writable(json_file, "--json") if json_file else None,
        timeout=timeout,
        shard=shard,
        tier=tier or usual_tier(named=bool(families or scenarios or checkpoint)),
        memory=memory,
        devices=devices,
        oracle_cache=not no_oracle_cache,
        family_files=family_files,
        plugins=plugins,
        expectations=expectations,
        no_expectations=no_expectations,
        no_mends=no_mends,
        checkpoint=checkpoint,
    )
    seconds = EXPLAIN_SECONDS if report is not None else 0.0
    run = SuiteRun(
        settings,
        chosen,
        jobs=jobs,
        exitfirst=exitfirst,
        output=output,
        report=report,
        explain_seconds=seconds if explain_seconds is None else explain_seconds,
        began=began,
        base=base,
        cluster=cluster,
    )
    ctx.exit(run())
