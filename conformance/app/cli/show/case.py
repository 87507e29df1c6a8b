"""``conformance show CASE_ID``: the whole evidence of one case."""

from __future__ import annotations

from pathlib import Path

from conformance.app.cli.case_lookup import case_of, near
from conformance.app.cli.models_output import plain_output
from conformance.app.cli.printing import say
from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseId, CaseResult
from conformance.report.jsonl import read_results


def recorded(case_id: str, source: Path) -> CaseResult:
    """The case's result from a file.

    Raises:
        ResultError: the text is not a case id, or the file is malformed.
        ConformanceError: the file has no such case.
    """
    case = str(CaseId.parse(case_id))
    results = {result.case: result for result in read_results(source)}
    if case not in results:
        raise ConformanceError(f"{source} has no case {case}{near(case, results)}")
    return results[case]


def run_one(case_id: str, settings: Settings) -> CaseResult:
    """Run just this case, in this process, and return its result.

    Raises:
        ConformanceError: there is no such case.
    """
    with plain_output():
        setup = make_setup(settings)
        for line in (*setup.notes, *setup.sweep()):
            say(line, err=True)
        case = case_of(setup.registry, case_id)
        return setup.judge.diagnosed(case, setup.judge.judged(case, setup.session.run(case)))
