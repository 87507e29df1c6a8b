"""``conformance audit caches``: compare each operation of each batch cache with plain rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import SEED, json_lines, library_path_option
from conformance.checks.expectations.entries import matches
from conformance.core.errors import ConformanceError
from conformance.power.caches.cache_defects import CacheDefect, explain, load_cache_defects, shows
from conformance.power.caches.discovery import Found, discover, methods
from conformance.power.caches.finding import FindingError, signature
from conformance.power.caches.sequences import Outcome, explore
from conformance.report.jsonl import write_lines


@click.command("caches")
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="GLOB",
    help="Classes to test, such as 'mlx_vlm.Batch*'; may be repeated. Default: all.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    default=80,
    show_default=True,
    metavar="N",
    help="Random sequences of operations for each class.",
)
@click.option(
    "--every",
    is_flag=True,
    help="Continue after a class's first difference and ignore known defects, to compare releases "
    "of a library.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, metavar="N")
@json_lines("Write each class's results as JSON lines.")
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    classes: tuple[str, ...],
    examples: int,
    every: bool,
    seed: int,
    target: Path | None,
) -> None:
    """Test every operation of every batch cache: insert, remove, merge, trim, copy, save.

    Random sequences of operations are run on the cache and on plain rows of tokens. After each
    operation, contents, masks, offsets, dtypes and reported bytes must agree. Stores of sequences
    and of tokens are compared with plain data. Exit code 1 if a class has an unknown difference or
    no test, or if a known defect no longer shows.
    """
    chosen = _chosen(classes)
    defects = () if every else load_cache_defects()
    known = signature if every else partial(explain, defects)
    console = new_console()
    outcomes: list[Outcome] = []
    with console.status("caches") as status:
        for found in chosen:
            status.update(f"{len(outcomes)}/{len(chosen)} classes, {found.name}")
            outcomes.append(explore(found, examples=examples, seed=seed, known=known))
    console.print(_table(chosen, outcomes))
    if target:
        write_lines(target, map(_every_as_line if every else _as_line, chosen, outcomes))
    uncovered = [found.name for found in chosen if not found.covered]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    stale = _stale(defects, chosen)
    for entry in defects:
        shown_in = [outcome.name for outcome in outcomes if entry.id in outcome.known]
        if shown_in:
            console.print(f"known: {entry.id} in {', '.join(shown_in)}", soft_wrap=True)
    _show(console, failures, uncovered, stale)
    shown = every and any(outcome.known for outcome in outcomes)
    ctx.exit(1 if failures or uncovered or stale or shown else 0)


def _chosen(patterns: Sequence[str]) -> list[Found]:
    found = discover()
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in found):
            names = ", ".join(one.name for one in found)
            raise ConformanceError(f"--class: no class matches {pattern!r}; there are {names}")
    return [one for one in found if not patterns or matches(one.name, patterns)]


def _stale(defects: tuple[CacheDefect, ...], chosen: Sequence[Found]) -> list[str]:
    """Entries whose own sequence no longer shows them, for the chosen classes."""
    names = {found.name for found in chosen}
    return [
        entry.id for entry in defects if entry.played in names and not shows(entry, chosen, defects)
    ]


def verdict(found: Found, outcome: Outcome) -> str:
    """The verdict on a class."""
    if not found.covered:
        return "uncovered"
    if outcome.failure:
        return "wrong"
    return "known" if outcome.known else "right"


def _table(chosen: Sequence[Found], outcomes: Sequence[Outcome]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("class", no_wrap=True)
    table.add_column("verbs", overflow="fold")
    table.add_column("sequences", justify="right")
    table.add_column("verdict")
    for found, outcome in zip(chosen, outcomes, strict=True):
        table.add_row(
            found.name,
            " ".join(sorted(outcome.verbs)),
            str(outcome.sequences),
            verdict(found, outcome),
        )
    return table


def _show(
    console: Console,
    failures: Sequence[FindingError],
    uncovered: Sequence[str],
    stale: Sequence[str],
) -> None:
    for finding in failures:
        console.print(sequence(finding), soft_wrap=True)
    for name in uncovered:
        console.print(
            f"{name}: uncovered, no kind in conformance/power/caches tests it", soft_wrap=True
        )
    for name in stale:
        console.print(f"known defect {name} no longer shows: take its entry out", soft_wrap=True)


def sequence(finding: FindingError) -> str:
    """The operations that show the difference, one per line, and the difference."""
    verbs = "".join(f"  {number}. {step}\n" for number, step in enumerate(finding.steps))
    return f"{finding.name} differs:\n{verbs}  {finding.problem.what}: {finding.problem.text}\n"


def _every_as_line(found: Found, outcome: Outcome) -> str:
    noted = outcome.known | (
        {signature(outcome.failure): outcome.failure} if outcome.failure else {}
    )
    return json.dumps(
        {
            "class": found.name,
            "verdict": verdict(found, outcome),
            "methods": methods(found.cls),
            "differences": [
                {
                    "signature": name,
                    "text": f"{one.problem.what}: {one.problem.text}",
                    "steps": one.steps,
                }
                for name, one in sorted(noted.items())
            ],
        }
    )


def _as_line(found: Found, outcome: Outcome) -> str:
    return json.dumps(
        {
            "class": found.name,
            "verdict": verdict(found, outcome),
            "sequences": outcome.sequences,
            "verbs": dict(sorted(outcome.verbs.items())),
            "known": {name: one.as_dict() for name, one in sorted(outcome.known.items())},
            "failure": outcome.failure.as_dict() if outcome.failure else None,
        }
    )
