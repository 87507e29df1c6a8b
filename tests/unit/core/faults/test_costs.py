"""What a defect costs, against the run without it."""

import msgspec
import pytest
from results_by_hand import make_result

from conformance.core.faults.costs import costlier
from conformance.core.verdict import ScheduleResult, Verdict

RIGHT = ScheduleResult(
    "pair",
    Verdict.EXACT,
    forward_calls=10,
    padded_positions=4,
    real_positions=40,
    host_reads=20,
    longest_wait=2,
)


def result(*schedules):
    return make_result("a/b/ragged/float32/0", schedules=schedules)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ()),
        ({"host_reads": 26}, ()),
        ({"host_reads": 27}, ("host reads",)),
        ({"longest_wait": 3}, ()),
        ({"longest_wait": 4}, ("wait",)),
        ({"padded_positions": 13}, ()),
        ({"padded_positions": 15}, ("padding",)),
        ({"padded_positions": 8, "real_positions": 80}, ()),
        ({"padded_positions": 40, "longest_wait": 9}, ("padding", "wait")),
    ],
)
def test_figures_that_are_clearly_worse_are_named(changes, found):
    wrong = msgspec.structs.replace(RIGHT, **changes)
    assert costlier(result(RIGHT), result(wrong)) == found


def test_schedules_are_compared_by_name():
    other = msgspec.structs.replace(RIGHT, name="other", host_reads=99)
    assert costlier(result(RIGHT), result(other)) == ()
    assert costlier(result(RIGHT, other), result(RIGHT, other)) == ()
