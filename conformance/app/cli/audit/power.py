"""``conformance audit power``: put every fault into every family; which do the checks catch?"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from functools import cache
from pathlib import Path

import click
import msgspec
from rich.console import Console

from conformance.app.cli.audit.power_table import print_matrix
from conformance.app.cli.cluster_option import Helpers, cluster_option, helpers
from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import (
    EXISTING_FILE,
    SEED,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
)
from conformance.app.cli.outputs import places
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError, ReportError
from conformance.core.user_files import read_text
from conformance.power import faults as own_faults
from conformance.power.mutation.power import Unit, crashed, halves, trials
from conformance.report.fault_table import with_faults
from conformance.report.jsonl import ResultFile, write_lines
from conformance.report.trials import Outcome, Trial, encode, read_trials
from conformance.run.registry import Registry, select
from conformance.run.selection import DTYPES

EXIT_INTERRUPTED = 2
_FAULTS_OF_PART = 8


@click.command("power")
@globs("fault", "Faults to try. Default: all.")
@globs("engine", "Only faults that apply to these engines. Default: all but servers.")
@globs("family", "Families to try. Default: all.")
@click.option(
    "--quick", is_flag=True, help="One family for each kind of cache, instead of all families."
)
@click.option(
    "--every-scenario",
    is_flag=True,
    help="Run every scenario with each fault, even after one has caught it: shows which checks and "
    "scenarios are the only ones to catch something.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N")
@json_lines(
    "Write one JSON line for each fault in each family. An interrupted run leaves "
    "FILE.partial instead."
)
@click.option(
    "--read",
    "sources",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE",
    help="Only report the results of an earlier run from this file, whole or partial; may be "
    "repeated, and --json then merges the files. "
    "For the same fault, family, dtype and seed the last result counts.",
)
@click.option(
    "--table",
    "table_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what kills each fault as a Markdown table; if FILE has marks for this table, "
    "between them.",
)
@cluster_option
@jobs_option()
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    faults: tuple[str, ...],
    engines: tuple[str, ...],
    families: tuple[str, ...],
    quick: bool,
    every_scenario: bool,
    dtype: str,
    seed: int,
    json_file: Path | None,
    sources: tuple[Path, ...],
    table_file: Path | None,
    jobs: int | None,
    cluster: str | None,
) -> None:
    """Put historic defects into the installed libraries; see which of them are caught.

    Each fault is put around the runs of an engine, in every family where it can occur, and the
    scenarios that should catch it are run, the cheapest first. A survivor is a hole in the checks:
    exit code 1, also if some faults cannot be imported. After an interruption, the exit code is 2,
    and the results so far are reported.
    """
    target, table_file = places((json_file, "--json"), (table_file, "--table"))
    console = new_console()
    if sources:
        found, ended, lacking = read_trials(sources), True, False
        if target:
            ResultFile(target, encode).finish(found)
    else:
        registry = registry_of(faults=True)
        hooks = ["conformance_faults"]
        lacking = not faults and bool(registry.lacking(engines or ("*",), also=hooks))
        units = _units(registry, faults, engines, families, quick=quick)
        more = {"dtype": dtype, "seed": seed, "every_scenario": every_scenario}
        units = [msgspec.structs.replace(unit, **more) for unit in units]
        if every_scenario:
            units = _parts(units)
        with helpers(cluster, jobs) as shared:
            found, ended = _try_all(units, console, target, shared)
    if not found and ended:
        raise ConformanceError("there is nothing to report: no fault meets a family")
    print_matrix(console, found)
    if table_file:
        text = read_text(table_file, ReportError) if table_file.exists() else ""
        write_lines(table_file, with_faults(text, found).splitlines())
    if not ended:
        left = f"; {target}.partial has it" if target else ""
        console.print(f"interrupted: this is what was found until then{left}", soft_wrap=True)
        ctx.exit(EXIT_INTERRUPTED)
    ctx.exit(int(lacking or any(trial.outcome is Outcome.SURVIVED for trial in found)))


def _try_all(
    units: list[Unit], console: Console, target: Path | None, shared: Helpers
) -> tuple[tuple[Trial, ...], bool]:
    """All trials, and whether they are complete: Ctrl-C ends them early."""
    file = ResultFile(target, encode) if target else None
    found: list[Trial] = []
    pairs = sum(len(unit.faults) for unit in units)
    with (
        console.status("trying faults") as status,
        contextlib.closing(_tried(units, shared)) as done,
    ):
        try:
            for trial in done:
                found.append(trial)
                if file is not None:
                    file.add(trial)
                status.update(f"{len(found)} of {pairs} pairs of fault and family")
        except KeyboardInterrupt:
            return tuple(found), False
    order = {(u.engine, u.family): number for number, u in enumerate(units)}
    found.sort(key=lambda trial: order[trial.engine, trial.family])
    if file is not None:
        file.finish(found)
    return tuple(found), True


def _tried(units: list[Unit], shared: Helpers) -> Generator[Trial, None, None]:
    """Yield trials as they come; a unit that crashed its process is halved, down to one fault."""
    while units:
        torn: list[Unit] = []
        for index, found in shared.as_they_come(_work, units, on_crash=_crashed):
            if found is not None:
                yield from found
            elif parts := halves(units[index]):
                torn += parts
            else:
                yield from crashed(_registry(), units[index])
        units = torn


def _units(
    registry: Registry,
    faults: tuple[str, ...],
    engines: tuple[str, ...],
    families: tuple[str, ...],
    *,
    quick: bool,
) -> list[Unit]:
    globs = [glob if "/" in glob else f"*/{glob}" for glob in faults]
    chosen = [registry.faults[key] for key in select(registry.faults, globs, what="fault")]
    # A server is tried only if it is named: it must be started for each fault.
    wanted = registry.select_engines(engines or ("*",))
    units = []
    for engine in dict.fromkeys(fault.engine for fault in chosen):
        if engine not in wanted:
            continue
        names = tuple(fault.key for fault in chosen if fault.engine == engine)
        for family in _families(registry, engine, families, quick=quick):
            units.append(Unit(engine, family, "float32", 0, names))
    return units


def _parts(units: list[Unit]) -> list[Unit]:
    """Split the units; the first parts of all families come first, to keep many processes busy.

    Each part repeats the runs without a fault, which costs about as much as one fault.
    """
    parts = (
        (start, msgspec.structs.replace(unit, faults=unit.faults[start : start + _FAULTS_OF_PART]))
        for unit in units
        for start in range(0, len(unit.faults), _FAULTS_OF_PART)
    )
    return [part for _, part in sorted(parts, key=lambda pair: pair[0])]


def _families(
    registry: Registry, engine: str, patterns: tuple[str, ...], *, quick: bool
) -> list[str]:
    families = registry.families_of(registry.engines[engine])
    wanted = set(select((f.name for f in registry.families.values()), patterns, what="family"))
    return [f.name for f in families if f.name in wanted and (f.facts.quick or not quick)]


@cache
def _registry() -> Registry:
    """Made once in each worker."""
    return own_faults.registry_with_faults()


def _work(unit: Unit) -> tuple[Trial, ...] | None:
    return trials(_registry(), unit)


def _crashed(_: Unit) -> None:
    return None
