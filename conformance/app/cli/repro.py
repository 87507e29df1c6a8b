"""``conformance repro``: write a failing case as a short script without this project."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from rich.progress import track
from rich.table import Table

from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import SECONDS as FINITE
from conformance.app.cli.options import (
    case_options,
    jobs_option,
    library_path_option,
)
from conformance.app.cli.outputs import writable
from conformance.app.cli.parallel import as_they_come
from conformance.app.cli.printing import say
from conformance.app.cli.registries import case_of
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.run_settings import Settings, settings_of
from conformance.checks.expectations import Defect, Expectations
from conformance.core.errors import ConformanceError, NoScriptError, ReproError
from conformance.core.verdict import CaseId, CaseResult
from conformance.report.jsonl import write_lines
from conformance.run.registry import select
from conformance.tools.repro import Wanted, find, shown_by, with_plain_config
from conformance.tools.repro.known_scripts import (
    TABLE,
    KnownScript,
    Material,
    found_before,
    issue_text,
    killed,
    read_folder,
    script_of,
    table_lines,
    tried_before,
    ways,
    without,
    written,
)
from conformance.tools.repro.search import SECONDS
from conformance.tools.repro.trying import try_script


@click.command("repro")
@click.argument("case_id", required=False)
@click.option("--unittest", is_flag=True, help="Write a unittest.TestCase method instead.")
@click.option(
    "--issue",
    is_flag=True,
    help="For a known defect: write the text of an upstream issue, with the script and the effect "
    "of its mend.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the script to FILE instead of printing it.",
)
@click.option("--schedule", metavar="NAME", help="The schedule. Default: the first that fails.")
@click.option(
    "--seconds",
    type=FINITE,
    default=SECONDS,
    show_default=True,
    help="How long to search for a smaller schedule.",
)
@click.option(
    "--python",
    default=sys.executable,
    metavar="FILE",
    help="Interpreter that runs the script, for example from an environment with only the library. "
    "Default: this interpreter.",
)
@click.option("--known", metavar="GLOB", help="Write and run scripts of known defects instead.")
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --known: write the scripts and the table into this folder.",
)
@click.option(
    "--tried",
    is_flag=True,
    help="With --known and --to: only print the folder's table; run nothing.",
)
@jobs_option("With --known: worker processes. 'auto': one for each core.")
@case_options
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    case_id: str | None,
    unittest: bool,
    issue: bool,
    out: Path | None,
    schedule: str | None,
    seconds: float,
    python: str,
    known: str | None,
    to: Path | None,
    tried: bool,
    jobs: int | None,
    **given: Any,
) -> None:
    """Write a failing case, or a known defect, as a script that needs only mlx and the library.

    CASE_ID is the id of a case or of a known defect. The script has at most 60 lines; it prints
    single stream and batch side by side and exits 1 while the defect exists. It is run once before
    it is printed or written. With --known, scripts of known defects are written and run, with a
    table of the results; exit code 1 if one of them has no script that shows it. With --to, the
    command continues the table of an earlier call.
    """
    if (case_id is None) == (known is None):
        raise click.UsageError("name a case, or known defects by --known")
    target = writable(out, "--out") if out else None
    engine = CaseId.parse(case_id).engine if case_id and "/" in case_id else "*"
    setup = make_setup(settings_of({**given, "engines": (engine,)}))
    if known is not None:
        ctx.exit(known_scripts(setup, known, folder=to, python=python, tried=tried, jobs=jobs))
    assert case_id is not None
    if issue and ("/" in case_id or unittest):
        raise click.UsageError("--issue is of a known defect: name its id, without --unittest")
    if schedule is not None and "/" not in case_id:
        raise click.UsageError("--schedule is of a case, not of a known defect")
    with plain_output():
        if issue:
            text, output = known_issue(setup, case_id, python=python), ""
        elif "/" in case_id:
            text, output = _of_case(
                setup, case_id, schedule, seconds, python=python, unittest=unittest
            )
        else:
            text, output = known_script(setup, case_id, python=python, unittest=unittest)
    if target is None:
        say(text, nl=False)
    else:
        write_lines(target, text.splitlines())
        say(f"{out}: {text.count(chr(10))} lines")
    if output:
        say(output, err=True)


def _of_case(
    setup: Setup, name: str, schedule: str | None, seconds: float, *, python: str, unittest: bool
) -> tuple[str, str]:
    """The case's script, and its output."""
    case = case_of(setup.registry, name)
    named = (schedule,) if schedule else ()
    wanted = Wanted(schedules=named, entry=_entry(setup.expectations, case, schedule))
    found = with_plain_config(setup.session, find(setup.session, case, wanted, seconds=seconds))
    text, ended = shown_by(found, python=python, unittest=unittest)
    return text, ended.output


def _entry(known: Expectations | None, case: CaseId, schedule: str | None) -> Defect | None:
    """The case's known defect, if there is exactly one."""
    if known is None:
        return None
    about = [
        entry
        for entry in known.defects
        if case.scenario in entry.verdicts
        and entry.is_about(case.engine, case.family)
        and (schedule is None or entry.claims(case.scenario, schedule))
    ]
    return about[0] if len(about) == 1 else None


# Scripts of known defects, each run, as a table --------------------------------------------------

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
