"""Findings of one defect have one signature, and the worst is a schedule's result."""

from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import Finding, Verdict
from conformance.tools.explore.results import (
    Causes,
    Discovery,
    Explored,
    ExploreUnit,
    Maker,
    signature,
    worst,
)


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


SCHEDULE = Schedule("s", (Arrival((Request("a", (1,), 1),)),))


def found(verdict, what, seed=0, family="llama"):
    discovery = Discovery(
        "mlx_lm", family, "float32", verdict, "check", what, 1, Maker.SCHEDULES, True, 0.0,
        SCHEDULE, SCHEDULE,
    )  # fmt: skip
    return Explored(ExploreUnit("mlx_lm", family, "float32", seed, 1), discoveries=(discovery,))


def test_a_cause_from_a_second_seed_is_counted_and_not_shown_again():
    causes = Causes()
    assert len(causes.new(found(Verdict.DIVERGED, "by 0.1")).discoveries) == 1
    again = causes.new(found(Verdict.DRIFT, "by 0.01", seed=1))
    assert (again.discoveries, again.again) == ((), 1)


def test_other_families_exceptions_and_checks_are_other_causes():
    causes = Causes()
    for one in (
        found(Verdict.CRASH, "the engine raised ValueError: x 1"),
        found(Verdict.CRASH, "the engine raised IndexError: x 1"),
        found(Verdict.CRASH, "the engine raised ValueError: x 1", family="mamba"),
        found(Verdict.PROTOCOL, "says 1"),
        found(Verdict.DIVERGED, "by 1"),
    ):
        assert len(causes.new(one).discoveries) == 1
    assert causes.new(found(Verdict.CRASH, "the engine raised ValueError: x 2")).again == 1
