"""Single streams of two releases are compared where both have them, beyond rounding."""

import msgspec
import pytest
from results_by_hand import make_result

from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.moved_streams import moved_streams


def result(noise=None, **nats):
    made = make_result("mlx_lm/llama/ragged/float32/0", Verdict.EXACT)
    schedules = tuple(
        ScheduleResult(name, Verdict.EXACT, single_logprob=value) for name, value in nats.items()
    )
    return msgspec.structs.replace(made, schedules=schedules, noise=noise)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (result(a=-3.0), result(a=-3.0009)),
        (result(a=-3.0, noise=1e-4), result(a=-3.009, noise=1e-5)),
        (result(a=-3.0), result(b=-4.0)),
        (result(a=None), result(a=-4.0)),
        (result(a=-4.0), result(a=None)),
    ],
)
def test_rounding_and_what_only_one_has_are_not_named(before, after):
    assert moved_streams(before, after) == ""


def test_what_moved_is_named_by_schedule_with_the_largest_difference():
    before, after = result(a=-3.0, b=-3.0, c=1.0), result(a=-3.25, b=-3.5, c=1.0)
    assert moved_streams(before, after) == "(a, b): single streams moved, by 0.5 nats in all"
