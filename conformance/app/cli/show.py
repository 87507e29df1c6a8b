"""``conformance show``: what is installed, and the whole evidence of one case."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import (
    EXISTING_FILE,
    case_options,
    checkpoint_options,
    globs,
    library_path_option,
    settings_options,
)
from conformance.app.cli.printing import say
from conformance.app.cli.registries import case_of, near, registry_of
from conformance.app.cli.server_options import server_options
from conformance.app.cli.show_defects import Wanted, show_defects
from conformance.app.cli.show_lists import COVERAGE, DEFECTS, KINDS, lists_of, overview, print_lists
from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings, settings_of
from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.invocation import this_invocation
from conformance.core.nearest import did_you_mean
from conformance.core.severity import Severity
from conformance.core.verdict import CaseId, CaseResult, encode
from conformance.report import evidence_text
from conformance.report.jsonl import read_results
from conformance.run.hosting import load_plugins
from conformance.run.registry import Registry

_KINDS = "|".join(KINDS)


@click.command("show")
@click.argument("what", required=False, metavar=f"[{_KINDS}|CASE_ID]")
@click.argument("name", required=False, metavar="[ID]")
@globs(
    "engine",
    "families: only families of these engines. Each is loaded to show its caches and positions, "
    "the scenarios that apply, and why others do not. coverage: only these engines. May be "
    "repeated.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="GLOB",
    help="defects: only those of these libraries. May be repeated.",
)
@globs(
    "family",
    "families: only these. defects: only those that show in these families. May be repeated.",
)
@click.option(
    "--cache",
    "caches",
    multiple=True,
    metavar="GLOB",
    help="families: only those with a cache of this class, such as '*Rotating*'. Each family is "
    "loaded. May be repeated.",
)
@click.option(
    "--class",
    "kinds",
    type=click.Choice([kind.value for kind in Severity]),
    multiple=True,
    help="defects: only those that do this kind of harm. May be repeated.",
)
@click.option(
    "--from",
    "source",
    type=EXISTING_FILE,
    metavar="FILE",
    help="CASE_ID: read the case from a result file of `conformance run --json` instead of "
    "running it.",
)
@click.option(
    "--issue",
    is_flag=True,
    help="defects ID: print the text of an upstream issue, with a short script and its output. "
    "The defects that reach most have one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; lists have more detail.")
@server_options(lambda given: () if given["source"] else _engine_of(given["what"]))
@checkpoint_options
@settings_options("no-mends")
@case_options
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    what: str | None,
    name: str | None,
    engines: tuple[str, ...],
    libraries: tuple[str, ...],
    families: tuple[str, ...],
    caches: tuple[str, ...],
    kinds: tuple[str, ...],
    source: Path | None,
    issue: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show what is installed, what is known to be wrong upstream, or the evidence of one case.

    Without an argument, it counts the installed families, engines, scenarios and plugins. A CASE_ID
    has slashes, such as mlx_lm/llama/ragged/float32/0: just this case is run, in one child process
    with this terminal, so that `breakpoint()` and environment variables work; changes to a library
    belong in a module of `--plugin`. Exit code 1 if the verdict is not the expected one.

    `defects` lists the known upstream defects, those first that reach most and do most harm; with
    an ID, one in full: what a user suffers, the cause, the script that shows it.

    \b
    conformance show families                          their names, in one screen
    conformance show families --cache '*Rotating*'     those with such a cache
    conformance show families --engine mlx_vlm         each loaded: caches, positions
    conformance show coverage --engine mlx_lm          which of its fields schedules set
    conformance show defects --family llama            what is wrong upstream
    conformance show defects mamba-padded-state        one of these in full
    conformance show defects server-stop-ignored --issue   a text for upstream
    conformance show mlx_lm/llama/ragged/float32/0     one case in full
    """  # noqa: D301
    if engines and what not in {"families", COVERAGE}:
        raise ConformanceError("--engine goes with `conformance show families` or `coverage` only")
    if caches and what != "families":
        raise ConformanceError("--cache goes with `conformance show families` only")
    wanted = Wanted(libraries, () if what == "families" else families, kinds)
    if (name or wanted or issue) and what != DEFECTS:
        raise ConformanceError(
            "an ID, --library, --family, --class and --issue go with `conformance show defects`"
        )
    if what is not None and "/" in what:
        if source is not None:
            result = recorded(what, source)
        else:
            case = CaseId.parse(what)
            own = {"engines": (case.engine,), "dtypes": (case.dtype,)}
            result = run_one(what, settings_of({**given, **own}))
        say(encode(result) if as_json else evidence_text(result))
        ctx.exit(0 if result.expected else 1)
    of_cases = ("model", "no_expectations", *(() if what == DEFECTS else ("expectations",)))
    if source or any(given[option] for option in of_cases):
        raise ConformanceError(
            "--from, --model, --expectations and --no-expectations go with a CASE_ID"
        )
    registry = registry_of(
        load_plugins(given["plugins"]),
        family_files=given["family_files"],
        faults=what != DEFECTS,
    )
    if what == DEFECTS:
        folder = given["expectations"]
        show_defects(registry, name, wanted, folder, as_json=as_json, issue=issue)
        return
    _show_installed(registry, what, engines, families, caches, as_json=as_json)


def _engine_of(what: str | None) -> tuple[str, ...]:
    """The engine of a case id; none for anything else."""
    return (what.partition("/")[0],) if what is not None and "/" in what else ()


def _show_installed(
    registry: Registry,
    what: str | None,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    caches: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Print the list that ``what`` names, or the count of each list."""
    if what is not None and what not in KINDS:
        known = load_expectations(None, registry.expectations).defects
        if any(what == entry.id for entry in known):
            raise ConformanceError(f"show {what}: that is a known defect; show defects {what}")
        raise ConformanceError(
            f"show {what}: name {', '.join(KINDS)}, or a case such as mlx_lm/llama/ragged/float32/0"
            f"{did_you_mean(what, KINDS)}"
        )
    if what is None:
        if as_json:
            raise ConformanceError(f"--json: name what to show: {_KINDS}, or a CASE_ID")
        say(overview(registry))
        return
    with plain_output() if what == COVERAGE or caches else contextlib.nullcontext():
        lists = lists_of(registry, what, engines, families=families, caches=caches)
    if as_json:
        say(json.dumps(lists, indent=2))
    else:
        print_lists(lists)


# ``conformance show CASE_ID``: the whole evidence of one case ------------------------------------


def recorded(case_id: str, source: Path) -> CaseResult:
    """The case's result from a file.

    Raises:
        ResultError: the text is not a case id, or the file is malformed.
        ConformanceError: the file has no such case.
    """
    case = str(CaseId.parse(case_id))
    results = {result.case: result for result in read_results(source)}
    if case not in results:
        raise ConformanceError(f"{source} has no case {case}{near(case, results)}")
    return results[case]


def run_one(case_id: str, settings: Settings) -> CaseResult:
    """Run just this case, in this process, and return its result.

    Raises:
        ConformanceError: there is no such case.
    """
    with plain_output():
        setup = make_setup(settings)
        for line in (*setup.notes, *setup.sweep()):
            say(line, err=True)
        case = case_of(setup.registry, case_id)
        found = setup.judge.diagnosed(case, setup.judge.judged(case, setup.session.run(case)))
    return replace(found, invocation=this_invocation(options=settings.rerun_options))
