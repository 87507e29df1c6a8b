"""``conformance soak``: random schedules on engines and families that are right."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import click
import msgspec
from rich.console import Console

from conformance.app.cli.choices import globs, jobs_option, json_lines, writable
from conformance.app.cli.parallel import in_processes
from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.schedule import Schedule
from conformance.core.verdict import Verdict
from conformance.report.jsonl import write_lines
from conformance.run.registry import Registry, build_registry, select
from conformance.run.selection import DTYPES
from conformance.tools.mutation.drawing import Drawing, Way
from conformance.tools.mutation.soak import Soaked, SoakUnit, alarm, clean, soak


@click.command("soak")
@click.option(
    "--cases",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Requests to judge, at least; each is a row of some batch.",
)
@globs("engine", "Engines. Default: mlx_lm.")
@globs("family", "Families. Default: all without a known defect.")
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(DTYPES),
    multiple=True,
    metavar="DTYPE",
    help="Working dtypes, in turn. Default: float32, float16 and bfloat16.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N")
@json_lines(
    "Write one JSON line for each family that was played, its false alarms with their schedules."
)
@jobs_option()
@click.pass_context
def command(
    ctx: click.Context,
    *,
    cases: int,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    dtypes: tuple[str, ...],
    seed: int,
    json_file: Path | None,
    jobs: int | None,
) -> None:
    """Look for false alarms: all that is not exact or a tie on families without known defects.

    Random schedules are played on engines and families of which no defect is known. What is
    flagged is either a defect that nobody has named yet or an alarm that should not be: exit
    code 1.
    """
    target = writable(json_file, "--json") if json_file else None
    drawing = Drawing(_ways(engines, families, dtypes), cases, seed=seed)
    console = Console(highlight=False)
    with console.status("playing") as status:
        while units := drawing.units():
            for more in in_processes(_work, units, jobs=jobs, died=_died):
                drawing.take(more)
                alarms = sum(len(item.alarms) for item in drawing.found)
                status.update(f"{drawing.rows} of {cases} rows, {alarms} alarms")
    found = drawing.found
    if target:
        write_lines(target, (msgspec.json.encode(item).decode() for item in found))
    for line in _told(drawing, cases):
        console.print(line, soft_wrap=True)
    ctx.exit(0 if _passed(drawing) else 1)


def _ways(
    engines: tuple[str, ...], families: tuple[str, ...], dtypes: tuple[str, ...]
) -> list[Way]:
    registry, expectations = _registry(), load_expectations()
    chosen = set(select((name for _, name in registry.families), families, what="family"))
    pairs = [
        (engine, family.name)
        for engine in select(registry.engines, engines or ("mlx_lm",), what="engine")
        for family in registry.families_of(registry.engines[engine])
        if family.name in chosen
    ]
    subjects = [pair for pair in pairs if clean(expectations, *pair)]
    if not subjects:
        names = ", ".join(sorted({name for _, name in pairs}))
        raise ConformanceError(f"no family without a known defect is selected: {names}")
    return [(*pair, dtype) for dtype in dtypes or DTYPES for pair in subjects]


def _passed(drawing: Drawing) -> bool:
    return drawing.complete and not any(item.alarms for item in drawing.found)


def _told(drawing: Drawing, cases: int) -> list[str]:
    """The alarms, what could not be played, and one sentence."""
    found = drawing.found
    lines = [
        f"{a.verdict}: {a.engine}/{a.family} {a.dtype} {a.schedule.name}: {a.what}"
        for item in found
        for a in item.alarms
    ]
    refused = Counter(item.unsupported for item in found if item.unsupported)
    lines += [f"not played ({count}): {why}" for why, count in refused.most_common()]
    if not drawing.complete:
        lines.append(f"{drawing.rows} of {cases} rows were judged: no other family is left to play")
    schedules = sum(item.schedules for item in found)
    names = {(item.unit.engine, item.unit.family) for item in found if item.rows}
    worst = max(found, key=lambda item: item.worst_ratio)
    where = f" ({worst.unit.family} in {worst.unit.dtype})" if worst.worst_ratio else ""
    alarms = sum(len(item.alarms) for item in found)
    lines.append(
        f"{'OK' if _passed(drawing) else 'FAILED'}: {alarms} alarms in {drawing.rows} rows of "
        f"{schedules} schedules, {len(names)} families; worst difference "
        f"{worst.worst_ratio:.3g} times the noise{where}"
    )
    return lines


@cache
def _registry() -> Registry:
    """Made once in each worker."""
    return build_registry()


def _work(unit: SoakUnit) -> Soaked:
    return soak(_registry(), unit)


def _died(unit: SoakUnit) -> Soaked:
    what = alarm(unit, Verdict.CRASH, "its process died", Schedule("soak", ()))
    return Soaked(unit, alarms=(what,))
