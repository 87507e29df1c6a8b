"""``conformance repro ID --issue``: the text of an upstream issue about a known defect."""

from __future__ import annotations

from pathlib import Path

from conformance.app.cli.case_lookup import case_of
from conformance.app.cli.repro_known import entry_of, known_script
from conformance.app.pytest_plugin.setup import Setup
from conformance.checks.expectations import Defect
from conformance.core.errors import ReproError
from conformance.core.verdict import CaseResult
from conformance.tools.repro.issue import Material, issue_text
from conformance.tools.repro.known_scripts import ways
from conformance.tools.repro.trying import try_script

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
