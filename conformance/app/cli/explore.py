"""``conformance explore``: search for schedules that show a defect, and shrink them."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec

from conformance.app.cli.cluster_option import Helpers, cluster_option, helpers
from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import (
    MINUTES,
    SEED,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
)
from conformance.app.cli.outputs import writable
from conformance.app.cli.parallel import in_processes
from conformance.app.cli.registries import chosen_pairs, expectations, registry
from conformance.core.errors import ConformanceError
from conformance.core.schedule import Schedule, to_json
from conformance.core.verdict import Verdict
from conformance.report.jsonl import ResultFile
from conformance.run.mending import Mending
from conformance.run.registry import select
from conformance.run.selection import DTYPES
from conformance.run.session import Session
from conformance.tools.explore.corpus import entry_of, write_entry
from conformance.tools.explore.exclusions import left_out, mended, verdicts
from conformance.tools.explore.false_alarms import (
    AlarmResult,
    AlarmUnit,
    Allotment,
    Way,
    alarm,
    play_random,
)
from conformance.tools.explore.results import Causes, Discovery, Explored, ExploreUnit

_CASES = 1000
_EXAMPLES = 400


@click.command("explore")
@click.option(
    "--false-alarms",
    is_flag=True,
    help="Run random schedules on families without a known defect instead: any result that is "
    "neither exact nor a tie is a false alarm.",
)
@globs("engine", "Engines to explore. Default: mlx_lm.")
@globs("family", "Families to explore. Default: all without a known defect.")
@click.option("--minutes", type=MINUTES, metavar="M", help="Time limit for all families together.")
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Schedules for each family. Default: {_EXAMPLES}, or as many as --minutes allow.",
)
@click.option(
    "--cases",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --false-alarms: judge at least this many requests (rows of batches). "
    f"Default: {_CASES}.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=click.Choice(DTYPES),
    multiple=True,
    help="Working dtype. Default: float32. With --false-alarms it may be repeated; default: "
    "float32, float16 and bfloat16 in turn.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N")
@click.option("--fault", metavar="KEY", help="Put this fault in; the search should find it.")
@click.option(
    "--known", is_flag=True, help="Include families with known defects; findings with the verdicts "
    "of known defects are counted, not reported.",
)  # fmt: skip
@click.option(
    "--corpus",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Save each discovery in this folder.",
)
@json_lines("Write one JSON line for each family, with its discoveries.")
@cluster_option
@jobs_option()
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    false_alarms: bool,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    minutes: float | None,
    examples: int | None,
    cases: int | None,
    dtypes: tuple[str, ...],
    seed: int,
    fault: str | None,
    known: bool,
    corpus: Path | None,
    target: Path | None,
    jobs: int | None,
    cluster: str | None,
) -> None:
    """Search for schedules that show a defect, and shrink them.

    Hypothesis makes schedules from all features that an engine has, each batch from a random subset
    of them, and programs that insert, step, remove and extract in any order. Equal seeds make equal
    schedules. Exit code 1 if anything is found.

    With --false-alarms, random schedules are run on engines and families without a known defect.
    Each finding is either a new defect or a false alarm: exit code 1.
    """
    if false_alarms:
        exploring: dict[str, object] = {"--minutes": minutes, "--examples": examples}
        exploring |= {"--fault": fault, "--known": known, "--corpus": corpus}
        exploring |= {"--cluster": cluster}
        _refuse(exploring, "does not go with --false-alarms")
        pairs = chosen_pairs(engines or ("mlx_lm",), families)
        ways = [(*pair, dtype) for dtype in dtypes or DTYPES for pair in pairs]
        passed = look_for_false_alarms(ways, cases or _CASES, seed=seed, target=target, jobs=jobs)
        ctx.exit(0 if passed else 1)
    _refuse({"--cases": cases, "a second --dtype": dtypes[1:]}, "goes with --false-alarms only")
    if corpus is not None:
        corpus = writable(corpus, "--corpus")
    (dtype,) = dtypes or DTYPES[:1]
    if fault is not None:
        (fault,) = select(registry().faults, (fault,), what="fault")[:1]
    engines = engines or ((fault.partition("/")[0],) if fault else ("mlx_lm",))
    hint = "; --known takes all"
    pairs = chosen_pairs(engines, families, known=known or bool(fault), hint=hint)
    with helpers(cluster, jobs) as shared:
        rounds, seconds = shares(len(pairs), shared.count, minutes)
        units = [
            _unit(
                ExploreUnit(
                    engine,
                    family,
                    dtype,
                    seed + number,
                    examples or (sys.maxsize if minutes else _EXAMPLES),
                    seconds=seconds,
                    fault=fault or "",
                ),
                known=known,
            )
            for number in range(rounds if cluster else 1)
            for engine, family in pairs
        ]
        found = _explore_all(units, corpus, shared)
    ResultFile(target).finish(found)
    ctx.exit(1 if any(item.bad for item in found) else 0)


def _unit(plain: ExploreUnit, *, known: bool) -> ExploreUnit:
    """The unit with what is known: mended where it can be, else left out, or counted if asked."""
    if plain.fault:
        return plain
    about = (plain.engine, plain.family)
    repaired = mended(expectations(), Mending(Session(registry())), *about)
    if known:
        found = verdicts(expectations(), *about, mended=repaired)
        return msgspec.structs.replace(plain, known=found, mended=repaired)
    without = left_out(expectations(), *about, mended=repaired)
    return msgspec.structs.replace(plain, without=without, mended=repaired)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options of the other mode."""
    for option, value in options.items():
        if value:
            raise ConformanceError(f"{option} {why}")


def shares(pairs: int, workers: int, minutes: float | None) -> tuple[int, float | None]:
    """Seeds for each pair of engine and family, and the seconds for each seed.

    If there are more workers than pairs, each pair is explored from several seeds at the same time.
    """
    if minutes is None:
        return 1, None
    rounds = max(1, workers // pairs)
    return rounds, minutes * 60 * min(1.0, workers / pairs)


def _explore_all(units: list[ExploreUnit], corpus: Path | None, shared: Helpers) -> list[Explored]:
    """Explore; print each family's discoveries as soon as it is done, and each cause once."""
    console, found, causes = new_console(), [], Causes()
    crashed = partial(Explored, failed="its process crashed")
    with console.status("exploring") as status:
        for _, given in shared.as_they_come(_work, units, on_crash=crashed):
            more = causes.new(given)
            found.append(more)
            for line in lines(more):
                console.print(line, soft_wrap=True)
            _keep(more, corpus)
            status.update(f"{len(found)} of {len(units)} families and seeds")
    for line in summary(found):
        console.print(line, soft_wrap=True)
    return found


def _keep(found: Explored, corpus: Path | None) -> None:
    if corpus is None or found.unit.fault:
        return
    library = registry().engines[found.unit.engine].library
    versions = registry().libraries[library].versions()
    for discovery in found.discoveries:
        if discovery.reproduced:
            write_entry(entry_of(discovery, library, versions), corpus)


def _work(unit: ExploreUnit) -> Explored:
    from conformance.tools.explore.hunting import explore  # noqa: PLC0415 - only workers make examples

    return explore(registry(), unit)


# The output of ``conformance explore`` -----------------------------------------------------------


def lines(found: Explored) -> Iterator[str]:
    """One family: statistics of its schedules, and each discovery with its schedule."""
    unit = found.unit
    where = f"{unit.engine}/{unit.family}"
    if found.unsupported or found.failed:
        yield f"{where}: not explored: {found.unsupported or found.failed}"
        return
    again = f", {found.again} more findings like a known one" if found.again else ""
    unsteady = (
        f", {found.unsteady} batches behaved otherwise when repeated" if found.unsteady else ""
    )
    yield (
        f"{where}: {found.examples} schedules ({found.programs} of them programs, "
        f"{found.refused} refused) in {found.wall:.1f} s, {rate(found):.3g} a second and core"
        f"{again}{unsteady}"
    )
    for discovery in found.discoveries:
        yield from _discovered(discovery)


def _discovered(found: Discovery) -> Iterator[str]:
    size = len(found.schedule.requests)
    requests = "1 request" if size == 1 else f"{size} requests"
    yield (
        f"  {found.verdict}, found by example {found.example} ({found.maker}), shrunk to {requests}"
        f" in {found.seconds:.1f} s"
        + ("" if found.reproduced else "; playing the schedule again does not show it")
    )
    yield f"  {found.check}: {found.what}"
    yield f"  {to_json(found.schedule)}"


def rate(found: Explored) -> float:
    """Schedules per second of processor time: the median over whole seconds."""
    whole = found.rates[:-1] or found.rates
    return float(statistics.median(whole)) if whole else 0.0


def summary(found: Sequence[Explored]) -> Iterator[str]:
    """Coverage of all families together, and a summary sentence."""
    pairs: Counter[str] = Counter()
    for item in found:
        pairs.update(item.pairs)
    missing = sorted(name for name, count in pairs.items() if not count)
    seen = {name for item in found for name in item.witnesses}
    possible = dict.fromkeys(name for item in found for name in item.possible)
    yield f"pairs of features: {len(pairs) - len(missing)} of {len(pairs)}" + _but(missing)
    unseen = [name for name in possible if name not in seen]
    yield f"witnesses: {len(seen)} of {len(possible)}" + _but(unseen)
    examples = sum(item.examples for item in found)
    rates = [rate(item) for item in found if item.rates]
    wall = sum(item.wall for item in found)
    outside = 1 - sum(item.modelled for item in found) / wall if wall else 0.0
    discoveries = sum(len(item.discoveries) for item in found)
    speed = statistics.median(rates) if rates else 0.0
    failed = any(item.failed for item in found)
    verdict = "FAILED" if failed else "FOUND" if discoveries else "OK"
    yield (
        f"{verdict}: {discoveries} findings in {examples} schedules, "
        f"{len(rates)} families; {speed:.3g} schedules a second and core (median of families), "
        f"{outside:.0%} of the time outside of engine and oracle"
    )


def _but(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"; not {', '.join(names[:8])}{more}"


# ``conformance explore --false-alarms``: run random schedules where no defect is known -----------


def look_for_false_alarms(
    ways: Sequence[Way], cases: int, *, seed: int, target: Path | None, jobs: int | None
) -> bool:
    """Run schedules until ``cases`` rows are judged, and print the results.

    Args:
        ways: engine, family and dtype of each combination.
        target: JSON lines file for the results; ``None``: write none.

    Returns:
        Whether that many rows were judged and none raised an alarm.
    """
    allotment = Allotment(ways, cases, seed=seed)
    console = new_console()
    with console.status("playing") as status:
        while units := allotment.units():
            for more in in_processes(_play_alarms, units, jobs=jobs, on_crash=_crashed_alarms):
                allotment.take(more)
                alarms = sum(len(item.alarms) for item in allotment.found)
                status.update(f"{allotment.rows} of {cases} rows, {alarms} alarms")
    ResultFile(target).finish(allotment.found)
    for line in _alarm_lines(allotment, cases):
        console.print(line, soft_wrap=True)
    return _passed(allotment)


def _passed(allotment: Allotment) -> bool:
    return allotment.complete and not any(item.alarms for item in allotment.found)


def _alarm_lines(allotment: Allotment, cases: int) -> list[str]:
    """The alarms, the combinations that could not be run, and a summary sentence."""
    found = allotment.found
    lines = [
        f"{a.verdict}: {a.engine}/{a.family} {a.dtype} {a.schedule.name}: {a.what}"
        for item in found
        for a in item.alarms
    ]
    refused = Counter(item.unsupported for item in found if item.unsupported)
    lines += [f"not played ({count}): {why}" for why, count in refused.most_common()]
    if not allotment.complete:
        lines.append(
            f"{allotment.rows} of {cases} rows were judged: no other family is left to play"
        )
    schedules = sum(item.schedules for item in found)
    names = {(item.unit.engine, item.unit.family) for item in found if item.rows}
    worst = max(found, key=lambda item: item.worst_ratio)
    where = f" ({worst.unit.family} in {worst.unit.dtype})" if worst.worst_ratio else ""
    alarms = sum(len(item.alarms) for item in found)
    lines.append(
        f"{'OK' if _passed(allotment) else 'FAILED'}: {alarms} alarms in {allotment.rows} rows of "
        f"{schedules} schedules, {len(names)} families; worst difference "
        f"{worst.worst_ratio:.3g} times the noise{where}"
    )
    return lines


def _play_alarms(unit: AlarmUnit) -> AlarmResult:
    return play_random(registry(), unit)


def _crashed_alarms(unit: AlarmUnit) -> AlarmResult:
    what = alarm(unit, Verdict.CRASH, "its process crashed", Schedule("random", ()))
    return AlarmResult(unit, alarms=(what,))
