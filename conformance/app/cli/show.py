"""``conformance show``: what is installed, what is wrong upstream, and all evidence of one case."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from conformance.app.cli.consoles import new_console
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
from conformance.app.cli.show_lists import COVERAGE, DEFECTS, KINDS, lists_of, overview, print_lists
from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings, settings_of
from conformance.checks.expectations import Refusal, load_expectations
from conformance.checks.expectations.defects import issue_scripts
from conformance.core.errors import ConformanceError
from conformance.core.invocation import this_invocation
from conformance.core.known_defect import KnownDefect, Severity, releases
from conformance.core.names import did_you_mean
from conformance.core.verdict import CaseId, CaseResult, encode
from conformance.report import evidence_text
from conformance.report.defects_text import as_dict, defect_text, issue_brief, labelled, list_text
from conformance.report.jsonl import read_results
from conformance.run.coverage import defects_upstream
from conformance.run.hosting import load_plugins
from conformance.run.registry import Registry, select

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


_WIDTH = 100  # columns of text, at most


@dataclass(frozen=True)
class Wanted:
    """Which defects are listed; empty: all.

    Attributes:
        libraries: globs, with hyphens or underscores.
        families: globs.
        kinds: names of ``Severity``.
    """

    libraries: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return bool(self.libraries or self.families or self.kinds)


def show_defects(
    registry: Registry,
    name: str | None,
    wanted: Wanted,
    folder: Path | None,
    *,
    as_json: bool,
    issue: bool = False,
) -> None:
    """Print the defects that are wanted, or the one with this id.

    Args:
        folder: the expectations, instead of the project's own.
        issue: print the text of an upstream issue about it.

    Raises:
        ConformanceError: there is no such defect, family or library, or no issue text.
    """
    known = load_expectations(folder, registry.expectations)
    found = defects_upstream(registry, known)
    width = min(new_console().width, _WIDTH)
    if issue:
        say(_issue(found, name, folder))
        return
    if name is None:
        chosen = chosen_defects(found, wanted)
        if as_json:
            say(_json([as_dict(one) for one in chosen]))
        else:
            say(list_text(chosen, releases(chosen), width=width))
        return
    if wanted:
        raise ConformanceError("--library, --family and --class are about the list: name no ID")
    defects = {entry: one for one in found for entry in one.entries}
    refusals = {refusal.id: refusal for refusal in known.refusals}
    if name in defects:
        one = defects[name]
        say(_json(as_dict(one)) if as_json else defect_text(one, name, width=width))
    elif name in refusals:
        refusal = refusals[name]
        say(_json(refusal) if as_json else _refusal_text(refusal, width=width))
    else:
        near = did_you_mean(name, [*defects, *refusals])
        raise ConformanceError(
            f"there is no known defect {name}{near or ' (`conformance show defects` lists all)'}"
        )


def _issue(found: Sequence[KnownDefect], name: str | None, folder: Path | None) -> str:
    """The text of an upstream issue, with a script and its output that are kept."""
    scripts = issue_scripts(folder)
    there = {one.id: one for one in found if one.id in scripts}
    if name is None:
        raise ConformanceError(f"--issue: name an ID; there are texts of {', '.join(there)}")
    if name not in there:
        raise ConformanceError(
            f"no issue text of {name} is kept; conformance repro {name} --issue writes one, with a "
            f"script that it runs{did_you_mean(name, there)}"
        )
    return issue_brief(there[name], scripts[name])


def chosen_defects(found: Sequence[KnownDefect], wanted: Wanted) -> tuple[KnownDefect, ...]:
    """The wanted ones, in their order.

    Raises:
        ConformanceError: a glob matches no library, or no family with a defect.
    """
    libraries = tuple(glob.replace("_", "-") for glob in wanted.libraries)
    packages = select(sorted({one.package for one in found}), libraries, what="library")
    having = sorted({family for one in found for family in one.families})
    families = select(having, wanted.families, what="family with a known defect")
    return tuple(
        one
        for one in found
        if one.package in packages
        if not wanted.families or set(one.families) & set(families)
        if not wanted.kinds or one.severity.value in wanted.kinds
    )


def _refusal_text(refusal: Refusal, *, width: int) -> str:
    """What a library refuses, and why."""
    shown = (
        ("families", ", ".join(refusal.families)),
        ("scenarios", ", ".join(refusal.scenarios)),
        ("message", refusal.text),
        ("why", " ".join(refusal.why.split())),
    )
    head = f"{refusal.id}: no defect, {refusal.package} refuses it itself"
    return labelled(head, shown, width=width)


def _json(found: Any) -> str:
    return json.dumps(msgspec.to_builtins(found), indent=2)
