"""``conformance audit functions``: check properties of functions that need no model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import click
from rich import box
from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import json_lines, library_path_option
from conformance.app.cli.registries import registry_of
from conformance.backend.uncompiled import uncompiled
from conformance.core.properties import Property
from conformance.core.unavailable import Unavailable, sentences
from conformance.power.properties import FunctionDefect, load_function_defects, properties_of
from conformance.report.jsonl import write_lines
from conformance.run.registry import select


@click.command("functions")
@click.option(
    "--property",
    "names",
    multiple=True,
    metavar="GLOB",
    help="Properties to try, such as 'samplers: *'; may be repeated. Default: all.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="GLOB",
    help="Libraries whose functions to check, such as mlx_lm. Default: all.",
)
@json_lines("Write each property's result as JSON lines.")
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    libraries: tuple[str, ...],
    target: Path | None,
) -> None:
    """Check functions without a model against definitions: samplers, masks, rotations, scans.

    Each property calls functions of a library with random arguments, and compares the results with
    its own definition. Exit code 1 if a property has an unknown failure, if a known defect no
    longer shows, or if this release lacks functions that a property needs.
    """
    chosen, lacking = _chosen(libraries, names)
    defects = load_function_defects()
    console = new_console()
    found: list[Found] = []
    with console.status("functions") as status, uncompiled():
        for library, one in chosen:
            status.update(f"{len(found)}/{len(chosen)} properties, {one.name}")
            start = time.perf_counter()
            problem = one.problem()
            known = [d.id for d in defects if problem and d.explains(library, one.name, problem)]
            seconds = time.perf_counter() - start
            found.append(Found(library, one.name, seconds, problem, next(iter(known), "")))
    console.print(_table(found))
    shown = {each.known for each in found}
    tried = {(each.library, each.name) for each in found}
    stale = [d.id for d in defects if d.id not in shown and (d.library, d.property) in tried]
    wrong = [each for each in found if each.verdict == "wrong"]
    for each in found:
        if each.known:
            console.print(f"known: {each.known} in {each.library}, {each.name}", soft_wrap=True)
    for each in wrong:
        said = f"{each.library}, {each.name}: {each.problem}"
        console.print(said, soft_wrap=True, markup=False)
    for name in stale:
        console.print(f"known defect {name} no longer shows: remove its entry", soft_wrap=True)
    for line in sentences(lacking):
        console.print(f"not tried: {line}", soft_wrap=True, markup=False)
    for line in [] if names else _by_script(defects, {library for library, _ in chosen}):
        console.print(f"not tried: {line}", soft_wrap=True, markup=False)
    if target:
        write_lines(target, map(_as_line, found))
    ctx.exit(1 if wrong or stale or lacking else 0)


@dataclass(frozen=True)
class Found:
    """The result of a property; ``known`` is the id of the entry that explains its failure."""

    library: str
    name: str
    seconds: float
    problem: str
    known: str

    @property
    def verdict(self) -> str:
        """The verdict on the function."""
        if not self.problem:
            return "right"
        return "known" if self.known else "wrong"


def _table(found: Sequence[Found]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("library", "property", "seconds", "verdict"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for one in found:
        table.add_row(one.library, one.name, f"{one.seconds:.2f}", one.verdict)
    return table


def _chosen(
    libraries: Sequence[str], names: Sequence[str]
) -> tuple[list[tuple[str, Property]], list[Unavailable]]:
    """The properties that match, and the left-out parts that may have had some.

    Raises:
        ConformanceError: a pattern matches none; the message lists them.
    """
    registry = registry_of()
    of_libraries = properties_of(registry)
    chosen = select((n for n, own in of_libraries.items() if own), libraries, what="library")
    found, lacking = [], [one for one in registry.unavailable if _may_lack(one, libraries)]
    for library in chosen:
        for one in of_libraries[library]:
            if isinstance(one, Unavailable):
                lacking.append(replace(one, plugin=library))
            else:
                found.append((library, one))
    kept = set(select(dict.fromkeys(one.name for _, one in found), names, what="property"))
    return [(library, one) for library, one in found if one.name in kept], lacking


def _may_lack(one: Unavailable, libraries: Sequence[str]) -> bool:
    """Whether left-out parts may have had properties of these libraries."""
    whole = one.hook in ("", "conformance_libraries")
    return not libraries or (whole and any(fnmatchcase(one.plugin, glob) for glob in libraries))


def _by_script(defects: Iterable[FunctionDefect], libraries: Set[str]) -> list[str]:
    """A sentence for each known defect of these libraries that no property shows."""
    own = (one for one in defects if not one.property and one.library in libraries)
    return [f"{one.id}, which only {one.script} shows" for one in own]


def _as_line(one: Found) -> str:
    line = {"library": one.library, "property": one.name, "verdict": one.verdict}
    return json.dumps({**line, "problem": one.problem, "known": one.known})
