"""``conformance audit power``: put every fault into every family; which do the checks catch?"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from conformance.app.cli.cluster_option import Helpers, cluster_option, helpers
from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.options import (
    SEED,
    earlier_results,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
    new_file,
)
from conformance.app.cli.registries import named_families, registry_of
from conformance.checks import CHECKS
from conformance.core.errors import ConformanceError, ReportError
from conformance.core.grouping import grouped
from conformance.core.user_files import read_text
from conformance.power import faults as own_faults
from conformance.power.mutation.power import Unit, crashed, halves, trials
from conformance.report.jsonl import ResultFile, write_lines
from conformance.report.trials import (
    LEAST,
    Outcome,
    Separation,
    Trial,
    read_trials,
    separations,
    with_faults,
)
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
@earlier_results("For the same fault, family, dtype and seed the last result counts.")
@new_file(
    "--table",
    "table_file",
    "Write what kills each fault as a Markdown table; if FILE has marks for this table, between "
    "them.",
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
    target: Path | None,
    sources: tuple[Path, ...],
    table_file: Path | None,
    jobs: int | None,
    cluster: str | None,
) -> None:
    """Put defects into the installed libraries; see which of them are caught.

    Each fault is put around the runs of an engine, in every family where it can occur, and the
    scenarios that should catch it are run, the cheapest first. A survivor is a hole in the checks:
    exit code 1, also if some faults cannot be imported. After an interruption, the exit code is 2,
    and the results so far are reported.
    """
    console = new_console()
    if sources:
        found, ended, lacking = read_trials(sources), True, False
        ResultFile(target).finish(found)
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
    file = ResultFile(target)
    found: list[Trial] = []
    pairs = sum(len(unit.faults) for unit in units)
    with (
        console.status("trying faults") as status,
        contextlib.closing(_tried(units, shared)) as done,
    ):
        try:
            for trial in done:
                found.append(trial)
                file.add(trial)
                status.update(f"{len(found)} of {pairs} pairs of fault and family")
        except KeyboardInterrupt:
            return tuple(found), False
    order = {(u.engine, u.family): number for number, u in enumerate(units)}
    found.sort(key=lambda trial: order[trial.engine, trial.family])
    file.finish(found)
    return tuple(found), True


def _tried(units: list[Unit], shared: Helpers) -> Generator[Trial, None, None]:
    """Yield trials as they come; a unit that crashed its process is halved, down to one fault."""
    while units:
        torn: list[Unit] = []
        for index, found in shared.as_they_come(_work, units, on_crash=lambda _: None):
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
        units += [
            Unit(engine, family.name, "float32", 0, names)
            for family in named_families(registry, engine, families)
            if family.facts.quick or not quick
        ]
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


@cache
def _registry() -> Registry:
    """Made once in each worker."""
    return own_faults.registry_with_faults()


def _work(unit: Unit) -> tuple[Trial, ...] | None:
    return trials(_registry(), unit)


# The kill matrix in words and tables -------------------------------------------------------------

# How many kills and families are shown, the smallest signal over noise first.
_FAINTEST = 10


def print_matrix(console: Console, trials: Sequence[Trial]) -> None:
    """All results of the trials, for each dtype separately."""
    for dtype in sorted({trial.dtype for trial in trials}, reverse=True):
        some = [trial for trial in trials if trial.dtype == dtype]
        apart = separations(some)
        console.print(by_class(some, dtype))
        if apart:
            console.print(faintest(some))
            console.print(closest(apart))
        for line in (*too_close(apart), *candidates(some), *survivors(some), verdict(some)):
            console.print(line, soft_wrap=True)


def by_class(trials: Sequence[Trial], title: str) -> Table:
    """For each class of faults, how many pairs of fault and family were killed and survived."""
    counted = ("faults", "killed", "survived", "hidden", "not applicable")
    table = new_table(title, "class", *counted, right=counted)
    for name, group in sorted(grouped(trials, lambda trial: trial.fault_class).items()):
        table.add_row(name, *_counts(group))
    table.add_row("all", *_counts(trials), style="bold")
    return table


def _counts(trials: Sequence[Trial]) -> list[str]:
    outcomes = Counter(trial.outcome for trial in trials)
    return [str(len({t.fault for t in trials})), *(str(outcomes[outcome]) for outcome in Outcome)]


def faintest(trials: Sequence[Trial]) -> Table:
    """The kills with the smallest signal over noise."""
    kills = [(kill.ratio, t, kill) for t in trials for kill in t.kills if kill.ratio is not None]
    table = new_table("faintest kills", "signal / noise", "fault", "family", "scenario", "checks")
    for ratio, trial, kill in sorted(kills, key=lambda item: item[0])[:_FAINTEST]:
        where = f"{trial.engine}/{trial.family}"
        table.add_row(f"{ratio:.3g}", trial.fault, where, kill.scenario, ", ".join(kill.checks))
    return table


def closest(apart: Sequence[Separation]) -> Table:
    """The families with the smallest separation."""
    title = f"separation: the closest of {len(apart)} families"
    table = new_table(title, "separation", "family", "smallest signal", "largest noise", "of fault")
    for item in apart[:_FAINTEST]:
        figures = (f"{item.signal:.3g}", f"{item.noise:.3g}")
        table.add_row(f"{item.value:.3g}", f"{item.engine}/{item.family}", *figures, item.fault)
    return table


def too_close(apart: Sequence[Separation]) -> Iterator[str]:
    """Warn about families whose separation is too small for their dtype."""
    names = [f"{a.engine}/{a.family} ({a.value:.3g}, {a.fault})" for a in apart if not a.enough]
    if names:
        yield f"separation below {LEAST[apart[0].dtype]:g}: {', '.join(names)}"


def candidates(trials: Sequence[Trial]) -> Iterator[str]:
    """For each scenario and check, the faults that only it catches.

    Scenarios and checks without any are named. Uses only trials for which every scenario was run.
    """
    whole = [trial for trial in trials if trial.complete]
    if not whole:
        return
    scenarios = {name for trial in whole for name in trial.tried}
    checks = {check.__module__.rpartition(".")[2] for check in CHECKS}
    for what, names, known in (
        ("scenario", lambda kill: (kill.scenario,), scenarios),
        ("check", lambda kill: kill.checks, checks),
    ):
        alone: dict[str, set[str]] = defaultdict(set)
        seen: set[str] = set()
        for trial in whole:
            by = {name for kill in trial.kills for name in names(kill)}
            seen |= by
            if len(by) == 1:
                alone[by.pop()].add(trial.fault)
        for name in sorted(alone):
            yield f"only {what} {name} catches: {', '.join(sorted(alone[name]))}"
        for how, some in (("alone", seen - set(alone)), ("at all", known - seen)):
            if some:
                yield f"may be removed, each {what} that catches nothing {how}: " + ", ".join(
                    sorted(some)
                )


def survivors(trials: Sequence[Trial]) -> Iterator[str]:
    """A line for each pair of fault and family that no check detected."""
    for t in trials:
        if t.outcome is Outcome.SURVIVED:
            why = t.why or f"tried {', '.join(t.tried)}"
            yield f"survived: {t.fault} in {t.engine}/{t.family} {t.dtype} ({why})"


def verdict(trials: Sequence[Trial]) -> str:
    """A summary sentence; names the faults that applied nowhere."""
    applicable = {t.fault for t in trials if t.outcome is not Outcome.NOT_APPLICABLE}
    idle = sorted({t.fault for t in trials} - applicable)
    hidden = sum(t.outcome is Outcome.HIDDEN for t in trials)
    aside = f"; {hidden} are hidden by what is wrong without them" if hidden else ""
    aside += f"; applicable in none of these families: {', '.join(idle)}" if idle else ""
    killed = sum(t.outcome is Outcome.KILLED for t in trials)
    pairs = killed + sum(t.outcome is Outcome.SURVIVED for t in trials)
    word, share = ("OK" if killed == pairs else "FAILED"), killed / max(pairs, 1)
    return f"{word}: {killed} of {pairs} pairs of fault and family were killed ({share:.1%}){aside}"
