"""Lines of a result file that deny themselves."""

import pytest
from results_by_hand import make_finding, make_result

from conformance.core.verdict import ScheduleResult, Verdict, WitnessResult
from conformance.report.contradictions import contradiction

WRONG = ScheduleResult("a", Verdict.DIVERGED)
RULE = make_finding(Verdict.DIVERGED, check="expectations")
GL = "ImportError: libGL.so.1: cannot open shared object file: No such file"
LACKS = make_finding(Verdict.UNSUPPORTED, got=GL)


@pytest.mark.parametrize(
    "result",
    [
        make_result(),
        make_result(verdict=Verdict.DIVERGED),
        make_result(verdict=Verdict.DIVERGED, expected=True, known="x", schedules=(WRONG,)),
        make_result(evidence=(make_finding(Verdict.DIVERGED, mended="x"),)),
        make_result(expected=False, known="x", evidence=(RULE,)),
        make_result(verdict=Verdict.UNSUPPORTED, expected=True, evidence=(LACKS,)),
        make_result(verdict=Verdict.CRASH, schedules=(WRONG,)),
    ],
)
def test_what_is_written_by_a_run_is_none(result):
    assert contradiction(result) == ""


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            make_result(evidence=(make_finding(),)),
            "the verdict is exact, but that of a finding is diverged",
        ),
        (
            make_result(schedules=(WRONG,)),
            "the verdict is exact, but that of a schedule is diverged",
        ),
        (
            make_result(verdict=Verdict.DRIFT, schedules=(WRONG,)),
            "the verdict is drift, but that of a schedule is diverged",
        ),
        (
            make_result(verdict=Verdict.DIVERGED, expected=True),
            "'expected' is true, but diverged is the verdict and no defect is known",
        ),
        (
            make_result(verdict=Verdict.UNSUPPORTED, expected=True),
            "'expected' is true, but unsupported is the verdict and no defect is known",
        ),
        (
            make_result(schedules=(ScheduleResult("a", Verdict.EXACT),), left_out=("a",)),
            "the schedule 'a' was played and left out",
        ),
        (
            make_result(witnesses=(WitnessResult("padding", ("b",)),)),
            "'b' shows 'padding', but was not played",
        ),
    ],
)
def test_each_is_named(result, words):
    assert contradiction(result) == words
