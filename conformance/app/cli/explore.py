"""``conformance explore``: schedules that nobody thought of, made, shrunk and kept."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import click
import msgspec
from rich.console import Console

from conformance.app.cli.choices import cores, globs, jobs_option, json_lines, writable
from conformance.app.cli.explore_report import lines, summary
from conformance.app.cli.parallel import as_they_come
from conformance.checks.expectations import Expectations, load_expectations
from conformance.core.errors import ConformanceError
from conformance.report.jsonl import write_lines
from conformance.run.registry import Registry, build_registry, select
from conformance.run.selection import DTYPES
from conformance.tools.explore.corpus import entry_of, write_entry
from conformance.tools.explore.exclusions import left_out, verdicts
from conformance.tools.explore.results import Explored, ExploreUnit
from conformance.tools.mutation.soak import clean


@click.command("explore")
@globs("engine", "Engines. Default: mlx_lm.")
@globs("family", "Families. Default: all without a known defect.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M", help="Share this time."
)
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Schedules for each family. Default: 400, or as many as --minutes allow.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N")
@click.option("--fault", metavar="KEY", help="Put this fault in; it should be found.")
@click.option(
    "--known", is_flag=True, help="Families with known defects, too; what has their verdicts is "
    "counted, not reported.",
)  # fmt: skip
@click.option(
    "--corpus",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep what is found in this folder.",
)
@json_lines("Write one JSON line for each family, with what was found.")
@jobs_option()
@click.pass_context
def command(
    ctx: click.Context,
    *,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    minutes: float | None,
    examples: int | None,
    dtype: str,
    seed: int,
    fault: str | None,
    known: bool,
    corpus: Path | None,
    json_file: Path | None,
    jobs: int | None,
) -> None:
    """Look for schedules that show a defect, and make each as small as can be.

    Hypothesis makes schedules from all features that an engine has, each batch from a random subset
    of them, and programs that insert, step, remove and extract in any order. Equal seeds make equal
    schedules. Exit code 1 if anything is found.
    """
    target = writable(json_file, "--json") if json_file else None
    if corpus is not None:
        corpus = writable(corpus, "--corpus")
    engines = engines or ((fault.partition("/")[0],) if fault else ("mlx_lm",))
    ways = _ways(engines, families, fault=fault, known=known or bool(fault))
    workers = min(jobs or cores(), len(ways))
    units = [
        ExploreUnit(
            engine,
            family,
            dtype,
            seed,
            examples or (sys.maxsize if minutes else 400),
            seconds=minutes * 60 * workers / len(ways) if minutes else None,
            fault=fault or "",
            known=verdicts(_expectations(), engine, family) if known and not fault else (),
            without=() if known or fault else left_out(_expectations(), engine, family),
        )
        for engine, family in ways
    ]
    console, found = Console(highlight=False), []
    with console.status("exploring") as status:
        for _, more in as_they_come(_work, units, jobs=jobs, died=_died):
            found.append(more)
            for line in lines(more):
                console.print(line, soft_wrap=True, markup=False)
            _keep(more, corpus)
            status.update(f"{len(found)} of {len(units)} families")
    if target:
        write_lines(target, (msgspec.json.encode(item).decode() for item in found))
    for line in summary(found):
        console.print(line, soft_wrap=True, markup=False)
    ctx.exit(1 if any(item.bad for item in found) else 0)


def _ways(
    engines: tuple[str, ...], families: tuple[str, ...], *, fault: str | None, known: bool
) -> list[tuple[str, str]]:
    registry = _registry()
    if fault is not None:
        (fault,) = select(registry.faults, (fault,), what="fault")[:1]
    chosen = set(select((name for _, name in registry.families), families, what="family"))
    pairs = [
        (engine, family.name)
        for engine in select(registry.engines, engines, what="engine")
        for family in registry.families_of(registry.engines[engine])
        if family.name in chosen
    ]
    expectations = _expectations()
    found = [pair for pair in pairs if known or clean(expectations, *pair)]
    if not found:
        names = ", ".join(sorted({name for _, name in pairs})) or "none of these engines"
        raise ConformanceError(
            f"no family without a known defect is selected: {names}; --known takes all"
        )
    return found


def _keep(found: Explored, corpus: Path | None) -> None:
    if corpus is None or found.unit.fault:
        return
    registry = _registry()
    library = registry.engines[found.unit.engine].library
    versions = registry.libraries[library].versions()
    for discovery in found.discoveries:
        if discovery.reproduced:
            write_entry(entry_of(discovery, library, versions), corpus)


@cache
def _registry() -> Registry:
    """Made once in each worker."""
    return build_registry()


@cache
def _expectations() -> Expectations:
    return load_expectations()


def _work(unit: ExploreUnit) -> Explored:
    from conformance.tools.explore.hunting import explore  # noqa: PLC0415 - only workers make examples

    return explore(_registry(), unit)


def _died(unit: ExploreUnit) -> Explored:
    return Explored(unit, failed="its process died")
