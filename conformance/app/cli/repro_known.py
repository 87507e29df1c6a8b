"""Scripts of known defects, each run, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.progress import track
from rich.table import Table

from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.parallel import as_they_come
from conformance.app.cli.registries import case_of
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.run_settings import Settings
from conformance.checks.expectations import Defect, Expectations
from conformance.core.errors import ConformanceError, NoScriptError, ReproError
from conformance.core.verdict import CaseResult
from conformance.report.jsonl import write_lines
from conformance.run.registry import select
from conformance.tools.repro.issue import Material, issue_text
from conformance.tools.repro.known_scripts import KnownScript, killed, script_of, ways, written
from conformance.tools.repro.tables import (
    TABLE,
    found_before,
    read_folder,
    table_lines,
    tried_before,
    without,
)
from conformance.tools.repro.trying import try_script

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
    numbers = ("requests", "lines")
    names = ("known defect", "case", *numbers, "said, or why there is none")
    found = new_table("", *names, right=numbers)
    for item in made:
        numbers = (str(item.requests), str(item.lines)) if item.shows else ("", "")
        found.add_row(item.entry, item.case, *numbers, item.said if item.shows else item.reason)
    return found


def reasons(made: list[KnownScript]) -> Table:
    """The number of entries for each reason that there is no script."""
    found = new_table("", "entries", "why there is no script", right=("entries",))
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


# ``conformance repro ID --issue``: the text of an upstream issue about a known defect ------------

_CASES = 8  # to try, until one is right once mended


def known_issue(setup: Setup, name: str, *, python: str) -> str:
    """The issue text for the known defect with this id, with a script that was run.

    Raises:
        ConformanceError: there is no such defect or script, or the defect does not show here.
    """
    entry = entry_of(setup, name)
    if entry.by_hand:
        script = _by_hand(entry)
        tried = try_script(script, python=python)
        if tried.code != 1:
            raise ReproError(f"{name}: {entry.script} does not show it, {tried.last}")
        said = tried.output
    else:
        script, said = known_script(setup, name, python=python, unittest=False)
    mend = setup.registry.mend_of(entry.id)
    return issue_text(Material(entry, script, said, _case(setup, entry), mend))


def _case(setup: Setup, entry: Defect) -> CaseResult:
    """A case of the entry, as released and mended; preferably a case that is right when mended."""
    shown = []
    for case in ways(setup.registry, entry):
        released = setup.session.run(case_of(setup.registry, str(case)))
        result = setup.judge.judged(case, released)
        if entry.id in (result.known or "").split(", "):
            shown.append(result)
            if shown[-1].right_once_mended or len(shown) == _CASES:
                break
    if not shown:
        raise ReproError(f"{entry.id}: no case shows it here")
    return next((result for result in shown if result.right_once_mended), shown[0])


def _by_hand(entry: Defect) -> str:
    """The script written by hand, which only a clone of the project has."""
    path = Path(__file__).parents[3] / entry.script
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReproError(
            f"{entry.id}: its script {entry.script} is in the project's repository, not installed; "
            "run this in a clone"
        ) from error
