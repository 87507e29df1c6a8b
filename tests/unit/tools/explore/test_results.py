"""Findings of one defect have one signature, and the worst is a schedule's result."""

from conformance.core.verdict import Finding, Verdict
from conformance.tools.explore.results import Explored, ExploreUnit, signature, worst


def finding(verdict, got=""):
    return Finding(verdict, "check", "what", got=got)


def test_numbers_are_one_kind():
    assert signature(finding(Verdict.DRIFT)) == signature(finding(Verdict.DIVERGED))
    assert signature(finding(Verdict.DRIFT)) != signature(finding(Verdict.PROTOCOL))


def test_crashes_are_identified_by_their_type_not_their_message():
    assert signature(finding(Verdict.CRASH, "ValueError: 3 rows")) == signature(
        finding(Verdict.CRASH, "ValueError: 2 rows")
    )
    assert signature(finding(Verdict.CRASH, "ValueError: x")) != signature(
        finding(Verdict.CRASH, "IndexError: x")
    )


def test_the_worst_finding_is_taken():
    assert worst([finding(Verdict.DRIFT), finding(Verdict.LEAK)]).verdict is Verdict.LEAK


def test_the_share_outside_is_of_the_wall_time():
    unit = ExploreUnit("right", "calm", "float32", 0, 1)
    assert Explored(unit, wall=4.0, modelled=3.0).outside == 0.25
    assert Explored(unit).outside == 0.0
