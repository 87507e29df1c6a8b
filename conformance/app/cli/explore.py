"""``conformance explore``: search for schedules that show a defect, and shrink them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from conformance.app.cli.cluster_option import Helpers, cluster_option, helpers
from conformance.app.cli.consoles import new_console
from conformance.app.cli.explore_families import chosen_pairs, expectations, registry
from conformance.app.cli.explore_output import lines, summary
from conformance.app.cli.false_alarms import look_for_false_alarms
from conformance.app.cli.numbers import MINUTES, SEED
from conformance.app.cli.options import (
    globs,
    jobs_option,
    json_lines,
    library_path_option,
)
from conformance.app.cli.outputs import writable
from conformance.core.errors import ConformanceError
from conformance.report.jsonl import write_lines
from conformance.run.registry import select
from conformance.run.selection import DTYPES
from conformance.tools.explore.corpus import entry_of, write_entry
from conformance.tools.explore.exclusions import left_out, verdicts
from conformance.tools.explore.results import Causes, Explored, ExploreUnit

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
    json_file: Path | None,
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
    target = writable(json_file, "--json") if json_file else None
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
            ExploreUnit(
                engine,
                family,
                dtype,
                seed + number,
                examples or (sys.maxsize if minutes else _EXAMPLES),
                seconds=seconds,
                fault=fault or "",
                known=verdicts(expectations(), engine, family) if known and not fault else (),
                without=() if known or fault else left_out(expectations(), engine, family),
            )
            for number in range(rounds if cluster else 1)
            for engine, family in pairs
        ]
        found = _explore_all(units, corpus, shared)
    if target:
        write_lines(target, (msgspec.json.encode(item).decode() for item in found))
    ctx.exit(1 if any(item.bad for item in found) else 0)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options of the other mode.

    Raises:
        ConformanceError: such an option is given.
    """
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
    with console.status("exploring") as status:
        for _, given in shared.as_they_come(_work, units, on_crash=_crashed):
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


def _crashed(unit: ExploreUnit) -> Explored:
    return Explored(unit, failed="its process crashed")
