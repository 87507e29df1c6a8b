"""The same run twice."""

import numpy as np
import pytest
from miniatures.plays import NOISE, Script

from conformance.checks.stability import check_stability, same_bits
from conformance.core.trace import Failure
from conformance.core.verdict import Verdict


def bits(script):
    play = script.play()
    return same_bits(play, play.traces[0], play.traces[1])


def shorten(take):
    moment, place = take.event("b", 2)
    del moment.events[place]


@pytest.mark.parametrize(
    ("change", "at"),
    [
        (lambda take: None, None),
        (lambda take: take.move("b", 2, np.nan, token=1), ("b", 2)),
        (lambda take: take.change("b", 2, token=7), ("b", 2)),
        (shorten, ("b", 0)),  # one that is only shorter differs from its beginning on
    ],
)
def test_another_number_or_token_or_length_is_another_run(change, at):
    script = Script()
    change(script.free)
    assert bits(script) is (at is None)
    assert check_stability(script.play()) == [], "two runs are no repetition"
    script = Script()
    change(script.repeat_forced())
    found = [(f.request_id, f.step, f.difference) for f in check_stability(script.play())]
    assert found == ([] if at is None else [(*at, np.inf)])


def test_one_bit_is_another_and_equal_nan_is_the_same():
    script = Script()
    for take in (script.forced, script.free):
        take.move("a", 2, np.nan, token=1)
    assert bits(script)
    script.free.move("a", 4, np.float32(1e-6), token=1)
    assert not bits(script)


@pytest.mark.parametrize(
    ("by", "unstable"), [(0.9 * NOISE, False), (1.2 * NOISE, True), (0.125, True)]
)
def test_a_third_run_unlike_the_first_by_more_than_the_floor_is_unstable(by, unstable):
    script = Script()
    script.repeat_forced().move("b", 1, by)
    findings = check_stability(script.play())
    assert [f.verdict for f in findings] == [Verdict.UNSTABLE] * unstable
    for found in findings:
        assert (found.request_id, found.step, found.row) == ("b", 1, 1)
        assert found.difference == pytest.approx(by, rel=0.05)
        assert found.noise == pytest.approx(NOISE)


def test_a_failed_run_is_no_repetition():
    script = Script()
    third = script.repeat_forced()
    third.move("a", 0, 1.0)
    third.failure = Failure("E", "m", "f:1", "step 1")
    assert check_stability(script.play()) == []


def test_chosen_logprobs_are_compared_where_they_are_all_there_is():
    script = Script()
    third = script.repeat_forced()
    for take in (script.forced, third):
        for step in range(3):
            take.change("b", step, logprobs=None)
    assert check_stability(script.play()) == []
    third.change("b", 2, token_logprob=-9.0)
    (found,) = check_stability(script.play())
    assert (found.request_id, found.step) == ("b", 2)


def test_the_worst_difference_is_reported_with_the_first_step():
    script = Script()
    third = script.repeat_forced()
    third.move("a", 1, 0.125)
    third.move("a", 3, 0.5)
    (found,) = check_stability(script.play())
    assert found.step == 1
    assert found.difference == pytest.approx(0.5, rel=1e-3)


def test_a_request_below_the_floor_does_not_hide_one_above_it():
    script = Script()
    third = script.repeat_forced()
    third.move("a", 0, 0.3 * NOISE)
    third.move("b", 1, 0.5)
    (found,) = check_stability(script.play())
    assert (found.request_id, found.step) == ("b", 1)


@pytest.mark.parametrize("alike", [-np.inf, np.nan])
def test_what_is_no_number_in_both_runs_is_no_difference(alike):
    """A masked token is written as minus infinity; another token's last bit is what differs."""
    script = Script()
    third = script.repeat_forced()
    for take in (script.forced, third):
        take.move("a", 0, alike, token=2)
    third.move("a", 1, 0.3 * NOISE)
    assert check_stability(script.play()) == []


def test_logprobs_that_only_one_run_shows_are_left_to_the_check_of_the_protocol():
    script = Script()
    script.repeat_forced().change("b", 1, logprobs=None)
    assert check_stability(script.play()) == []
    assert bits(script)
