"""What a failing workload needs: its schedule made small, and named in words."""

import msgspec
import pytest
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_session
from miniatures.wrong import AttendsToPadding, WrongBeyondEightRows

from conformance.core.schedule import Arrival, Removal, Request, Schedule, Trigger
from conformance.core.verdict import CaseId, Verdict
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


@pytest.mark.parametrize("as_released", [False, True])
def test_what_fails_behind_known_defects_stays_as_it_is(as_released):
    """What fails as released, too, may be the known defects' doing."""
    opened, case, result = failed(AttendsToPadding)
    behind = [msgspec.structs.replace(f, mended="known") for f in result.evidence]
    released = result.evidence if as_released else ()
    result = msgspec.structs.replace(result, evidence=(*released, *behind))
    assert with_needs(opened, case, result) == result


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
