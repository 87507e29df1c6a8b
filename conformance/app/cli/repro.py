"""``conformance repro``: write a failing case as a short script without this project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import SECONDS as FINITE
from conformance.app.cli.options import (
    case_options,
    jobs_option,
    library_path_option,
)
from conformance.app.cli.outputs import writable
from conformance.app.cli.printing import say
from conformance.app.cli.registries import case_of
from conformance.app.cli.repro_known import known_issue, known_script, known_scripts
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.run_settings import settings_of
from conformance.checks.expectations import Defect, Expectations
from conformance.core.verdict import CaseId
from conformance.report.jsonl import write_lines
from conformance.tools.repro import Wanted, find, shown_by, with_plain_config
from conformance.tools.repro.search import SECONDS


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
