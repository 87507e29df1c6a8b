"""``conformance audit calibrate``: measure how sensitive families are to small defects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.options import (
    SEED,
    family_files_option,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
)
from conformance.app.cli.parallel import in_processes
from conformance.app.cli.registries import chosen_families, registry_of
from conformance.core.errors import ConformanceError, ModelError, Unsupported
from conformance.core.family import Family, load_family
from conformance.core.library import Library
from conformance.core.sensitivity import RATIO_NEEDED, Sensitivity
from conformance.report.jsonl import write_lines
from conformance.run.selection import DTYPES

Subject = tuple[Library, Family]


@click.command("calibrate")
@globs("engine", "Measure the families of these engines; may be repeated. Default: all.")
@globs("family", "Families to measure; may be repeated. Default: all.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N")
@click.option(
    "--write",
    is_flag=True,
    help="Search a better weights recipe for families that fall short, and write it to their "
    "files.",
)
@json_lines("Write all signals and roundings as JSON lines, one for each family.")
@jobs_option()
@family_files_option
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    dtype: str,
    seed: int,
    write: bool,
    target: Path | None,
    jobs: int | None,
    family_files: tuple[Path, ...],
) -> None:
    """Measure how sensitive families are to small defects, relative to their rounding.

    The verdicts on an insensitive tiny model prove nothing. Three defects are put into each
    family's single stream: an earlier token dropped, a position shifted by one, a cache slot
    corrupted. The smallest resulting change (in nats) must be 10 times the rounding noise; the aim
    in float32 is 1000. Exit code 1 if a family falls short.
    """
    if write and (dtype != "float32" or seed):
        raise ConformanceError("--write: recipes are made for float32 and seed 0 only")
    registry = registry_of(family_files=family_files)
    chosen = chosen_families(registry, registry.select_engines(engines), families)
    console = new_console()
    measured = []
    with console.status("measuring") as status:
        for item in _measure_all(chosen, jobs=jobs, dtype=dtype, seed=seed, write=write):
            measured.append(item)
            status.update(f"{len(measured)}/{len(chosen)} families, {item.family}")
    console.print(table(measured))
    if target:
        write_lines(target, (as_line(item, dtype=dtype, seed=seed) for item in measured))
    console.print(verdict(measured), soft_wrap=True)
    ctx.exit(0 if all(item.good for item in measured) else 1)


def _measure_all(
    subjects: list[Subject], *, jobs: int | None, dtype: str, seed: int, write: bool
) -> Iterator[Measured]:
    """Yield each family's measurement, in order, as soon as it is there."""
    one = partial(measure_one, dtype=dtype, seed=seed, write=write)
    return in_processes(one, subjects, jobs=jobs, on_crash=_crashed)


def _crashed(subject: Subject) -> Measured:
    library, family = subject
    return Measured(f"{library.name}/{family.name}", None, problem="its process crashed")


def measure_one(subject: Subject, *, dtype: str, seed: int, write: bool) -> Measured:
    """The family's sensitivity, and with ``write`` whether a better recipe was found."""
    library, family = subject
    # Two libraries may each have a family with that name.
    label = f"{library.name}/{family.name}"
    try:
        before = library.sensitivity(family, dtype=dtype, seed=seed)
        if not (write and library.calibrate(family)):
            return Measured(label, before)
        better = load_family(Path(family.path))
        after = library.sensitivity(better, dtype=dtype, seed=seed)
        return Measured(label, after, written=True)
    except Unsupported as error:
        return Measured(label, None, problem=str(error), unsupported=True)
    except ModelError as error:
        return Measured(label, None, problem=str(error))


# The sensitivity of families as a table and as JSON lines ----------------------------------------

KINDS = ("drop", "shift", "slot", "media")


@dataclass(frozen=True)
class Measured:
    """One family's measurement.

    Attributes:
        sensitivity: ``None`` where the family could not be measured.
        problem: the reason, in the words of the library or of this project.
        unsupported: whether the library cannot run the family here.
        written: whether a better recipe was found and put into the family's file.
    """

    family: str
    sensitivity: Sensitivity | None
    problem: str = ""
    unsupported: bool = False
    written: bool = False

    @property
    def good(self) -> bool:
        """Whether the family is sensitive enough, or can't be run here at all."""
        return self.sensitivity.sensitive if self.sensitivity else self.unsupported

    @property
    def status(self) -> str:
        """A short text for the table."""
        if self.sensitivity is None:
            return ("unsupported: " if self.unsupported else "failed: ") + self.problem
        notes = [
            "" if self.sensitivity.sensitive else "INSENSITIVE",
            "" if self.sensitivity.varied else "dull stream",
            "single stream disagrees" if self.sensitivity.disagreements else "",
            "recipe written" if self.written else "",
        ]
        return ", ".join(note for note in notes if note) or "ok"


def table(measured: Sequence[Measured]) -> Table:
    """Each family's smallest signal for each kind of small defect, its noise and the ratio."""
    numbers = (*KINDS, "noise", "ratio", "tokens")
    found = new_table("", "family", *numbers, right=numbers)
    for column in found.columns:
        column.no_wrap = True
    found.add_column("", overflow="fold")
    for item in measured:
        style = "" if item.good else "bold red"
        found.add_row(item.family, *_numbers(item.sensitivity), Text(item.status, style=style))
    return found


def verdict(measured: Sequence[Measured]) -> str:
    """A summary sentence; names the families that are not good enough."""
    bad = [item.family for item in measured if not item.good]
    unsupported = sum(item.unsupported for item in measured)
    aside = f" ({unsupported} unsupported here)" if unsupported else ""
    needed = f"{RATIO_NEEDED:g} times their noise"
    if not bad:
        return f"OK: {len(measured) - unsupported} families move by at least {needed}{aside}"
    return (
        f"FAILED: {len(bad)} of {len(measured)} families move by less than {needed}, or could not "
        f"be measured{aside}: {', '.join(bad)}"
    )


def as_line(item: Measured, *, dtype: str, seed: int) -> str:
    """One line of JSON: all signals and roundings of a family, in nats."""
    found = item.sensitivity
    line = {"family": item.family, "dtype": dtype, "seed": seed, "status": item.status}
    numbers = {"ratio": found.ratio, "noise": found.noise, **asdict(found)} if found else {}
    return json.dumps({**line, **numbers})


def _numbers(found: Sensitivity | None) -> list[str]:
    if found is None:
        return [""] * (len(KINDS) + 3)
    least = [
        min((signal.nats for signal in found.signals if signal.kind == kind), default=None)
        for kind in KINDS
    ]
    signals = ["-" if nats is None else f"{nats:.2g}" for nats in least]
    return [*signals, f"{found.noise:.1g}", f"{found.ratio:.0f}", str(found.distinct)]
