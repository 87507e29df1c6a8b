"""What a failing workload needs: its schedule made small, and named in words."""

import msgspec
import pytest
from miniatures.right import ContinuousBatching
from miniatures.sessions import entry_of_wrong, padding_is_masked, toy_session
from miniatures.wrong import AttendsToPadding, RepeatsToken, WrongBeyondEightRows

from conformance.checks.expectations import Expectations
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Trigger
from conformance.core.verdict import CaseId, Verdict
from conformance.report.message import worst
from conformance.run import needs
from conformance.run.case_judge import CaseJudge
from conformance.run.needs import CHECK, needed, with_needs

ALONE = Schedule("s", (Arrival((Request("a", (1, 2), 3),)),))


def failed(engine, scenario="traffic"):
    opened = toy_session({"tested": engine})
    case = CaseId("tested", "calm", scenario, "float32", 0)
    return opened, case, opened.run(case)


@pytest.mark.parametrize(
    ("engine", "verdict", "need"),
    [
        (AttendsToPadding, Verdict.DIVERGED, "prompts of other lengths"),
        (WrongBeyondEightRows, Verdict.DIVERGED, "needs 9 requests"),
    ],
)
def test_what_is_left_of_a_failing_workload_is_named(engine, verdict, need):
    opened, case, result = failed(engine)
    said = with_needs(opened, case, result)
    assert said.verdict is result.verdict is verdict
    (*rest, last) = said.evidence
    assert tuple(rest) == result.evidence
    assert (last.check, last.verdict) == (CHECK, Verdict.EXACT)
    assert need in last.what
    assert f"needs {len(said.smallest.requests)} request" in last.what


def test_what_is_right_stays_as_it_is():
    opened, case, result = failed(ContinuousBatching)
    assert with_needs(opened, case, result) == result


def test_the_first_failed_workload_of_a_family_is_made_small():
    opened, case, result = failed(AttendsToPadding)
    judge = CaseJudge(opened, None)
    said = [any(f.check == CHECK for f in judge.diagnosed(case, result).evidence) for _ in "ab"]
    assert said == [True, False]
    small = msgspec.structs.replace(case, scenario="ragged")
    assert judge.diagnosed(small, opened.run(small)).smallest is None


class RepeatsTokensToo(AttendsToPadding, RepeatsToken):
    """A defect behind a known one."""


def test_what_fails_behind_known_defects_is_made_small_with_these_mended(monkeypatch):
    """What fails as released may be the known defect's doing, which needs unequal prompts."""
    monkeypatch.setattr(needs, "SECONDS", 300.0)  # to the end, on a busy machine too
    known = entry_of_wrong("padding-attended", verdicts={"traffic": Verdict.DIVERGED})
    options = {"mends": [padding_is_masked]}
    opened = toy_session({"wrong": RepeatsTokensToo}, **options)
    case = CaseId("wrong", "calm", "traffic", "float32", 0)
    judge = CaseJudge(opened, Expectations([known]))
    judged = judge.judged(case, opened.run(case))
    assert judged.mended is not None
    found = judge.diagnosed(case, judged)
    assert "needs 2 requests (" in found.evidence[-1].what
    assert len(found.smallest.requests) == 2
    assert worst(found).mended == "padding-attended"
    assert worst(found).schedule == found.evidence[-1].schedule, "needs are of what leads"
    assert with_needs(opened, case, judged) == judged, "it cannot run with them mended"


def test_everything_that_is_left_is_named():
    assert list(needed(ALONE)) == ["1 request"]
    late = Request("b", (1,) * 70, 12, stop=((5,),))
    joined = Arrival((late,), Trigger("a"))
    schedule = Schedule(
        "s", (*ALONE.arrivals, joined), (Removal(("a",), Trigger("b")), Removal(("b",), Trigger()))
    )
    assert list(needed(schedule)) == [
        "2 requests",
        "prompts of other lengths",
        "a prompt of 70 tokens",
        "12 output tokens",
        "a join while another decodes",
        "a removal in decode",
        "stop sequences",
    ]
