"""``conformance power``: every fault in every family, and which of them the checks catch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import click
from rich.console import Console

from conformance.cli.choices import JOBS, writable
from conformance.cli.parallel import in_processes
from conformance.cli.power_table import by_class, candidates, faintest, verdict
from conformance.power import Outcome, Trial, Unit, encode, trials, without
from conformance.registry import Registry, build_registry, select
from conformance.selection import DTYPES


@click.command("power")
@click.option(
    "--fault", "faults", multiple=True, metavar="GLOB", help="Faults to try. Default: all."
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="GLOB",
    help="Only faults that are put under these engines. Default: all.",
)
@click.option("--family", "families", multiple=True, metavar="GLOB", help="Families. Default: all.")
@click.option(
    "--quick", is_flag=True, help="One family for each kind of cache, instead of all families."
)
@click.option(
    "--every-scenario",
    is_flag=True,
    help="Run every scenario with each fault, not only until one catches it: tells which checks "
    "and scenarios alone catch something.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write one JSON line for each fault in each family.",
)
@click.option("--jobs", type=JOBS, default="auto", show_default=True, metavar="auto|N")
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
    jobs: int | None,
) -> None:
    """Re-enact historic defects in the installed libraries, and see which of them are caught.

    Each fault is put around the runs of an engine, in every family where it can occur, and the
    scenarios that should catch it are run, the cheapest first. A survivor is a hole in the checks:
    exit code 1.
    """
    target = writable(json_file, "--json") if json_file else None
    registry = build_registry()
    units = _units(registry, faults, engines, families, quick=quick)
    units = [
        Unit(u.engine, u.family, dtype, seed, u.faults, every_scenario=every_scenario)
        for u in units
    ]
    console = Console(highlight=False)
    found: list[Trial] = []
    with console.status("trying faults") as status:
        done = in_processes(_work, units, jobs=jobs, died=_died)
        for number, more in enumerate(done, start=1):
            found += more
            status.update(f"{number}/{len(units)} families")
    for part in (by_class(found), faintest(found), *candidates(found, complete=every_scenario)):
        console.print(part, soft_wrap=True)
    if target:
        target.write_text("".join(encode(trial) + "\n" for trial in found), encoding="utf-8")
    console.print(verdict(found), soft_wrap=True)
    ctx.exit(1 if any(trial.outcome is Outcome.SURVIVED for trial in found) else 0)


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
    wanted = select(registry.engines, engines, what="engine")
    units = []
    for engine in dict.fromkeys(fault.engine for fault in chosen):
        if engine not in wanted:
            continue
        names = tuple(fault.key for fault in chosen if fault.engine == engine)
        for family in _families(registry, engine, families, quick=quick):
            units.append(Unit(engine, family, "float32", 0, names))
    return units


def _families(
    registry: Registry, engine: str, patterns: tuple[str, ...], *, quick: bool
) -> list[str]:
    families = registry.families_of(registry.engines[engine])
    wanted = set(select((f.name for f in registry.families.values()), patterns, what="family"))
    return [f.name for f in families if f.name in wanted and (f.facts.quick or not quick)]


@cache
def _registry() -> Registry:
    """Made once in each worker."""
    return build_registry()


def _work(unit: Unit) -> tuple[Trial, ...]:
    return trials(_registry(), unit)


def _died(unit: Unit) -> tuple[Trial, ...]:
    return without(_registry(), unit, "its process died")
