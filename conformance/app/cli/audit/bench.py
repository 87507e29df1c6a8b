"""``conformance audit bench``: measure coverage, overhead and speed-up on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import cores, globs, jobs_option, json_lines, library_path_option
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.core.names import means
from conformance.run.registry import Registry, select
from conformance.run.selection import DEFAULT_ENGINES, Selection
from conformance.tools.bench import ratios
from conformance.tools.bench.ratios import Throughput, measure_throughput


@click.command("bench")
@globs("engine", "Engines to measure. Default: as for run.")
@globs("family", "Families to run. Default: all.")
@globs("scenario", "Scenarios to run. Default: all.")
@jobs_option("Worker processes, compared with a single process.")
@click.option(
    "--skip",
    type=click.Choice(["overhead", "speedup"]),
    multiple=True,
    help="Leave a part out; each runs all selected cases once (speedup: twice).",
)
@click.option(
    "--throughput",
    is_flag=True,
    help="Measure tokens per second of these engines of one library, in the given order, on each "
    "selected family.",
)
@json_lines("Write the figures as JSON.")
@library_path_option
def command(
    *,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    scenarios: tuple[str, ...],
    jobs: int | None,
    skip: tuple[str, ...],
    throughput: bool,
    target: Path | None,
) -> None:
    """Measure how fast a run is, and where its time goes.

    All figures are ratios within one call, since seconds differ between machines.
    """
    registry = registry_of()
    selection = Selection(engines or DEFAULT_ENGINES, families, scenarios)
    console = new_console()
    libraries = {registry.engines[n].library for n in registry.engines}
    covered = [ratios.measure_coverage(registry, name) for name in sorted(libraries)]
    for row in covered:
        console.print(
            f"coverage  {row.library}: {row.modules} modules, {row.covered} with a family "
            f"({row.families} families), {row.excluded} excluded, {row.uncovered} uncovered"
        )
    overhead = speedup = None
    if "overhead" not in skip:
        overhead = ratios.measure_overhead(registry, selection)
        console.print(
            f"overhead  {overhead.ratio:.2f}: {overhead.wall:.1f} s of wall time, "
            f"{overhead.forward:.1f} s in model calls, {overhead.cases} cases in one process"
        )
        console.print(_phase_table(overhead))
    if "speedup" not in skip:
        speedup = ratios.measure_speedup(registry, selection, jobs=jobs or cores())
        console.print(
            f"speed-up  {speedup.ratio:.2f}: {speedup.one:.1f} s with 1 process, "
            f"{speedup.many:.1f} s with {speedup.jobs}, {speedup.cases} cases"
        )
    speeds = _speeds(console, registry, selection) if throughput else []
    if target is not None:
        figures: dict[str, Any] = {"coverage": covered, "overhead": overhead, "speedup": speedup}
        figures |= {"throughput": speeds}
        target.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")


def _speeds(console: Console, registry: Registry, selection: Selection) -> list[Throughput]:
    engines = [n for glob in selection.engines for n in registry.engines if means(glob, n)]
    engines = list(dict.fromkeys(engines))
    if len({registry.engines[name].library for name in engines}) != 1:
        raise ConformanceError("--throughput: name engines of one library by --engine")
    families = [f.name for f in registry.families_of(registry.engines[engines[0]])]
    found = []
    for family in select(families, selection.families, what="family"):
        for row in measure_throughput(registry, engines, family):
            found.append(row)
            console.print(
                f"throughput  {row.engine} {row.family}, {row.rows} rows: "
                f"{row.tokens_per_second:.0f} tokens/s, {row.ratio:.2f} of {engines[0]}"
            )
    return found


def _phase_table(overhead: ratios.Overhead) -> Table:
    table = Table("phase", "seconds", "in model calls", "rest", "rest of wall time", box=None)
    for phase in overhead.phases:
        rest = phase.wall - phase.forward
        table.add_row(
            phase.name,
            f"{phase.wall:.2f}",
            f"{phase.forward:.2f}",
            f"{rest:.2f}",
            f"{rest / overhead.wall:.1%}",
        )
    return table
