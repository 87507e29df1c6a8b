"""Scripts of known defects, each run, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.progress import track
from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.parallel import as_they_come
from conformance.app.pytest_plugin.options import Settings
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.checks.expectations import Defect, Expectations
from conformance.core.errors import ConformanceError, NoScriptError, ReproError
from conformance.report.jsonl import write_lines
from conformance.run.registry import select
from conformance.tools.repro.known_scripts import (
    TABLE,
    KnownScript,
    found_before,
    killed,
    read_folder,
    script_of,
    table_lines,
    tried_before,
    without,
    written,
)

_WIDE = 400


@dataclass(frozen=True)
class _Try:
    """What a worker process needs to try one entry."""

    settings: Settings
    entry: str
    python: str


def known_scripts(
    setup: Setup,
    pattern: str,
    *,
    folder: Path | None,
    python: str,
    tried: bool = False,
    jobs: int | None = None,
) -> int:
    """Write and run a script for each entry whose id matches; return the exit code.

    Entries that the folder's table has for the installed releases are not rerun; with ``tried``,
    nothing is run.

    Args:
        jobs: processes that run them; ``None``: one for each core. A defect may crash its process;
            with 1, this process.

    Raises:
        ConformanceError: no entry matches, or the folder can't be made.
    """
    if setup.expectations is None:
        raise ReproError("--known and --no-expectations contradict each other")
    entries = {entry.id: entry for entry in setup.expectations.defects}
    names = select(entries, (pattern,), what="known defect")
    # Entries of one family in turn, so that its model stays loaded.
    named = (entries[name] for name in names)
    own = (entry for entry in named if entry.by_hand or not entry.script)  # others share a script
    ordered = sorted(own, key=lambda e: (e.package, e.families))
    made = read_folder(folder) if folder is not None else {}
    left = [entry for entry in ordered if not tried and not tried_before(made, entry)]
    work = [_Try(setup.settings, entry.id, python) for entry in left]
    found = as_they_come(_tried, work, jobs=jobs, on_crash=_crashed)
    console, total = new_console(stderr=True), len(left)
    for _, item in track(found, "trying scripts", total=total, console=console, disable=total < 2):
        made[item.entry] = item
        if folder is not None:
            _save(made, folder)
    asked = [made[entry.id] for entry in ordered if entry.id in made]
    out = new_console()
    if not out.is_terminal:  # a file has room for whole lines
        out = new_console(width=_WIDE)
    out.print(table(asked))
    out.print(reasons(asked))
    out.print(totals(asked, len(ordered)), soft_wrap=True)
    return 0 if all(item.shows for item in asked) and len(asked) == len(ordered) else 1


def known_script(setup: Setup, name: str, *, python: str, unittest: bool) -> tuple[str, str]:
    """The script of the known defect with this id, or of the entry it refers to, and its output.

    Raises:
        ConformanceError: there is no such defect, or no script of it, with the reason.
    """
    entry = entry_of(setup, name)
    if entry.by_hand:
        raise ReproError(f"{name}: its script is written by hand: {entry.script}")
    if entry.script:
        entry = entry_of(setup, entry.script)
    made = _script(setup, entry, python)
    if not made.shows:
        raise NoScriptError(made.reason, made.group)
    if not unittest:
        return made.script, made.said
    text, tried = written(setup.session, entry, made, unittest=True, python=python)
    return text, tried.output


def entry_of(setup: Setup, name: str) -> Defect:
    """The known defect with this id.

    Raises:
        ConformanceError: there is no such defect.
    """
    known = {entry.id: entry for entry in (setup.expectations or Expectations()).defects}
    if name not in (matching := select(known, (name,), what="known defect")):
        raise ReproError(f"{name!r} matches {len(matching)} known defects; --known takes globs")
    return known[name]


@cache
def _setup(settings: Settings) -> Setup:
    """The session of this process, made once; families stay loaded in it."""
    return make_setup(settings)


def _tried(work: _Try) -> KnownScript:
    setup = _setup(work.settings)
    return _script(setup, entry_of(setup, work.entry), work.python)


def _script(setup: Setup, entry: Defect, python: str) -> KnownScript:
    before = found_before(setup.settings.expectations).get(entry.id)
    return script_of(setup.session, entry, before=before, python=python)


def _crashed(work: _Try) -> KnownScript:
    return killed(entry_of(_setup(work.settings), work.entry))


def table(made: list[KnownScript]) -> Table:
    """Each entry: its case, the size of its script, the output, or why there is no script."""
    found = Table(box=None, pad_edge=False)
    for name in ("known defect", "case", "requests", "lines", "said, or why there is none"):
        found.add_column(name, justify="right" if name in ("requests", "lines") else "left")
    for item in made:
        numbers = (str(item.requests), str(item.lines)) if item.shows else ("", "")
        found.add_row(item.entry, item.case, *numbers, item.said if item.shows else item.reason)
    return found


def reasons(made: list[KnownScript]) -> Table:
    """The number of entries for each reason that there is no script."""
    found = Table(box=None, pad_edge=False)
    found.add_column("entries", justify="right")
    found.add_column("why there is no script")
    for reason, names in without(made).items():
        found.add_row(str(len(names)), reason)
    return found


def totals(made: list[KnownScript], count: int) -> str:
    """How many entries have a script that shows them, and how many were not tried."""
    shown = sum(item.shows for item in made)
    rest = f"; {count - len(made)} others not tried" if count > len(made) else ""
    return f"{shown} of {len(made)} known defects shown by a script of their own{rest}"


def _save(made: dict[str, KnownScript], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConformanceError(f"--to: {folder}: {error.strerror}") from error
    for item in made.values():
        if item.script:
            name = item.entry.replace("-", "_")
            write_lines(folder / f"{name}.py", item.script.splitlines())
    write_lines(folder / TABLE, table_lines(made.values()))
