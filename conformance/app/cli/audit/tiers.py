"""``conformance audit tiers``: show what the tiers run and catch, or choose them again."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.options import EXISTING_FILE, power_files_option
from conformance.app.cli.printing import say
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.names import QUICK
from conformance.core.verdict import CaseResult
from conformance.power.mutation import kills
from conformance.power.mutation.kills import Kills, killed_in, kills_of, read_kills, with_more
from conformance.power.mutation.tiering import (
    QUICK_RATE,
    choose,
    cross_validated,
    extended,
    schedule_names,
)
from conformance.report.jsonl import read_results, write_lines
from conformance.report.trials import read_trials
from conformance.run import tiers
from conformance.run.registry import Registry
from conformance.run.tiers import Choice, TierData, read_tiers


@click.command("tiers")
@power_files_option(
    "Choose the tiers from the output of `conformance audit power --every-scenario --json`"
)
@click.option(
    "--results",
    "result_files",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE",
    help="With --power: the results of `conformance run --tier full`, for the times.",
)
@click.option(
    "--extend",
    is_flag=True,
    help="With --power and --results: keep the current choice, and add the fewest schedules that "
    "catch the faults it does not know. Trials that ended at the first kill and results of any "
    "tier are enough.",
)
@click.option("--write", is_flag=True, help="Save the new choice in the installed package.")
def command(
    *, power_files: tuple[Path, ...], result_files: tuple[Path, ...], extend: bool, write: bool
) -> None:
    """Show how many faults each tier catches that it was not chosen by, or choose the tiers again.

    The default tier keeps the cheapest schedules that together catch everything the full ladder
    catches; the quick tier, at least 98% of it. What they are worth is measured by choosing each
    by half of the faults and scoring it on the other half, five times.

    \b
    conformance audit power --quick --every-scenario --json power.jsonl
    conformance run --tier full --json results.jsonl
    conformance audit tiers --power power.jsonl --results results.jsonl --write
    """  # noqa: D301
    registry = registry_of()
    if bool(power_files) != bool(result_files) or ((write or extend) and not power_files):
        raise ConformanceError("a new choice needs --power and --results; --write keeps it")
    if not power_files:
        _show(registry, read_tiers(), read_kills())
        return
    libraries = {name: engine.library for name, engine in registry.engines.items()}
    trials = read_trials(power_files)
    results = [result for path in result_files for result in read_results(path)]
    if extend:
        found = with_more(read_kills(), trials, libraries)
        data = _extended(registry, found, results)
    else:
        found = kills_of(trials, libraries)
        data = _chosen(registry, found, results)
    _show(registry, data, found)
    if write:
        for module, value in ((tiers, data), (kills, found)):
            path = Path(str(module.__file__)).with_name(module.FILE)
            text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
            write_lines(path, (text if value is data else msgspec.json.encode(value).decode(),))
            say(f"wrote {path}")


def _chosen(registry: Registry, found: Kills, results: Iterable[CaseResult]) -> TierData:
    """The choice for each library whose own engine was run and has kills."""
    ran = list(results)
    families = _families(registry)
    oracle_only = tuple(s.name for s in registry.scenarios.values() if s.oracle_only)
    made: dict[str, dict[str, Choice]] = {}
    versions: dict[str, str] = {}
    for library in sorted({name.split("/")[0] for name in found.caught}):
        # A library's engine has the library's name; its other engines are loops around that engine.
        mine = [result for result in ran if result.engine == library]
        if partial := next((r.case for r in mine if r.left_out), ""):
            raise ConformanceError(f"--results: {partial} is not of the full tier")
        if mine:
            versions |= mine[0].versions
            chosen = choose(library, mine, found, families, oracle_only)
            for name, choice in chosen.items():
                made.setdefault(name, {})[library] = choice
    if not made:
        raise ConformanceError("no library has both kills in --power and cases in --results")
    return TierData(_today(), dict(sorted(versions.items())), made)


def _extended(registry: Registry, found: Kills, results: Sequence[CaseResult]) -> TierData:
    """The current choice, with schedules added for newer faults."""
    present, families = read_tiers(), _families(registry)
    made: dict[str, dict[str, Choice]] = {}
    for name, choices in present.tiers.items():
        for library, choice in choices.items():
            made.setdefault(name, {})[library] = extended(
                name,
                library,
                choice,
                found,
                names=schedule_names(library, results),
                families=families,
                rate=QUICK_RATE if name == QUICK else 1.0,
            )
    return msgspec.structs.replace(present, tiers=made, extended=_today())


def _today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def _show(registry: Registry, data: TierData, found: Kills) -> None:
    families = _families(registry)
    numbers = ("of unseen faults", "chosen by", "of the time")
    unseen = {
        library: cross_validated(library, found, families)
        for library in {name.split("/")[0] for name in found.caught}
    }
    table = new_table("", "tier", "library", *numbers, right=numbers)
    for name, choices in data.tiers.items():
        caught = killed_in(found, tiers.Tier(name, choices), families)
        for library, choice in choices.items():
            mine = [family for family in found.caught if family.startswith(f"{library}/")]
            killed = sum(len(caught.get(family, ())) for family in mine)
            total = sum(len(found.caught[family]) for family in mine)
            by = f"{killed} of {total} faults in {len(mine)} families"
            hits, of = unseen.get(library, {}).get(name, (0, 0))
            rate = f"{hits / of:.1%}" if of else "-"
            table.add_row(name, library, rate, by, f"{choice.share:.0%}")
    console = new_console()
    console.print(table)
    made_of = ", ".join(f"{package} {version}" for package, version in data.versions.items())
    more = f", extended on {data.extended}" if data.extended else ""
    console.print(f"chosen on {data.date} with {made_of}{more}", soft_wrap=True)


def _families(registry: Registry) -> Mapping[str, Family]:
    return {f"{library}/{name}": f for (library, name), f in registry.families.items()}
