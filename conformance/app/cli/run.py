"""``conformance run``: run the suite under pytest, with the project's own output."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import httpx2

from conformance.app.cli.auto_explain import EXPLAIN_SECONDS
from conformance.app.cli.cluster_option import cluster_option
from conformance.app.cli.options import (
    EXISTING_FILE,
    SECONDS,
    case_options,
    checkpoint_options,
    jobs_option,
    library_path_option,
    settings_options,
    stacked,
)
from conformance.app.cli.output_options import Output, output_options
from conformance.app.cli.outputs import report_place, writable
from conformance.app.cli.printing import say
from conformance.app.cli.reuse import Chosen, reuse_options
from conformance.app.cli.suite_run import SuiteRun
from conformance.app.run_settings import settings_of
from conformance.core import named_server
from conformance.core.errors import ConformanceError
from conformance.core.http_clients import RefusedAnswerError, get
from conformance.report.worsening import Base

F = TypeVar("F", bound=Callable[..., Any])

_ENGINE = "http"
_MOST = 10_000_000
_SECONDS = 30.0


def server_options(function: F) -> F:
    """``--url``, ``--remote``, ``--requests``; with them ``--model`` is the server's model name.

    Apply it above ``checkpoint_options``, whose ``--model`` is otherwise a folder.
    """

    @functools.wraps(function)
    def call(
        *args: Any,
        url: str | None,
        remote: bool,
        requests: int | None,
        engines: tuple[str, ...],
        model: Path | None,
        **more: Any,
    ) -> Any:
        if url is not None:
            if engines != (_ENGINE,):
                raise ConformanceError(f"--url is about --engine {_ENGINE}, and about no other")
            name = "" if model is None else str(model)
            server = named_server.use(url, model=name, remote=remote, most=requests)
            _reach(server.url)
            model = None
            if server.most is not None:
                say(f"conformance: at most {server.most:,} requests go to {server.url}")
        elif remote or requests is not None:
            raise ConformanceError("--remote and --requests are about --url")
        elif _ENGINE in engines:
            named_server.named()
        return function(*args, engines=engines, model=model, **more)

    return stacked(
        click.option(
            "--url",
            metavar="URL",
            help="The server that --engine http asks, such as http://127.0.0.1:8080. --model is "
            "then the server's name of its model. Default: the first model that it lists.",
        ),
        click.option("--remote", is_flag=True, help="Allow a server of --url on another machine."),
        click.option(
            "--requests",
            type=click.IntRange(1, _MOST),
            metavar="N",
            help="The most requests to send to the server of --url. Default: "
            f"{named_server.MOST_REQUESTS:,} for another machine, no limit for this machine.",
        ),
    )(cast("F", call))


def _reach(url: str) -> None:
    """Check that a server answers at this address with a response that can be parsed.

    Raises:
        ConformanceError: no server does.
    """
    try:
        get(f"{url}/v1/models", _SECONDS)
    except RefusedAnswerError as error:
        raise ConformanceError(f"--url: {url}: {error}") from error
    except httpx2.HTTPError as error:
        why = str(error) or type(error).__name__
        raise ConformanceError(
            f"--url: no server answers at {url}: {why}; start it first"
        ) from error


@click.command("run")
@settings_options("engine", "family", "scenario", "dtype", "seed")
@jobs_option(
    "Worker processes. 'auto': one for each core. 1: no workers; a model that crashes then ends "
    "the run."
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
    "else 0: explain nothing.",
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
@server_options
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
