"""Which schedule of a failing case is explained."""

import pytest

from conformance.core.schedule import Schedule
from conformance.core.verdict import Finding, Verdict
from conformance.tools.explain.variations import first_failing

SCHEDULES = [Schedule(name, ()) for name in ("first", "second")]


def finding(schedule, verdict=Verdict.DRIFT, step=None):
    """What some check saw."""
    return Finding(verdict, "check", "", schedule=schedule, step=step)


@pytest.mark.parametrize(
    ("findings", "wrong", "chosen"),
    [
        ([finding("first"), finding("second", Verdict.CRASH)], (), "second"),
        ([finding("first"), finding("second", Verdict.CRASH)], ("second",), "first"),
        ([finding("second")], ("second",), "second"),
        ([finding("first"), finding("second", step=1)], (), "second"),
        ([finding("first", Verdict.POLICY), finding("second")], (), "second"),
    ],
)
def test_the_worst_that_is_right_without_the_fault(findings, wrong, chosen):
    schedule, _ = first_failing(SCHEDULES, findings, wrong)
    assert schedule.name == chosen


def test_of_what_accuses_nobody_nothing_is_taken_apart():
    assert first_failing(SCHEDULES, [finding("first", Verdict.EXACT)]) is None
