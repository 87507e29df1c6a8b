"""Which windows can be passed in a case."""

import pytest

from conformance.core.family import Facts, Family
from conformance.scenarios.join import LONGEST_WINDOW, WINDOW


@pytest.mark.parametrize("window", [None, 4, LONGEST_WINDOW])
def test_a_window_within_reach_is_passed(window):
    assert WINDOW.applies(Family("f", Facts(window=window), {})) == ""


def test_the_window_of_a_full_size_model_is_left_out_with_the_reason():
    reason = WINDOW.applies(Family("f", Facts(window=4096), {}))
    assert reason == "its window of 4096 tokens is too long to exceed; at most 256 is possible"
