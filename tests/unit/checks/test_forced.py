"""Numbers against the oracle's: nothing below the noise, everything above it."""

import numpy as np
import pytest
from miniatures.plays import NOISE, Script

from conformance.checks.forced import check_forced, common_steps, measure
from conformance.core.numerics import FACTOR, HOPELESS
from conformance.core.trace import Mode, Stream
from conformance.core.verdict import Verdict


def test_a_right_play_has_no_finding_and_asks_for_no_noise():
    script = Script()
    assert check_forced(script.play()) == []
    assert script.asked_noise == []


@pytest.mark.parametrize("take", ["forced", "free"])
def test_a_step_beyond_the_noise_is_a_drift(take):
    script = Script()
    getattr(script, take).move("b", 1, 0.25, token=6)
    (found,) = check_forced(script.play())
    assert (found.verdict, found.check) == (Verdict.DRIFT, "forced")
    assert (found.request_id, found.step, found.row, found.mode) == ("b", 1, 1, take)
    assert found.difference == pytest.approx(0.25, rel=1e-3)
    assert found.noise == pytest.approx(NOISE)
    assert found.margin == pytest.approx(1.0, rel=1e-3)
    assert found.expected == "the single stream's logprobs" + (
        " at the fed tokens" if take == "forced" else ""
    )


def test_a_difference_within_the_factor_is_rounding():
    script = Script()
    script.forced.move("b", 1, 0.9 * FACTOR * NOISE)
    assert check_forced(script.play()) == []


def test_what_only_many_runs_of_the_noise_show_is_rounding():
    script = Script()
    script.forced.move("b", 1, 0.5 * HOPELESS * NOISE)
    script.rare_noise = 0.25 * HOPELESS * NOISE
    assert check_forced(script.play()) == []
    assert set(script.asked_thorough) == {"b"}


def test_the_first_bad_step_is_reported_and_the_worst():
    script = Script()
    script.forced.move("a", 2, 1e-3)
    script.forced.move("a", 4, 2.0)
    (found,) = check_forced(script.play())
    assert found.step == 2
    assert "worst: 2 at token 4" in found.what


def test_a_masked_token_on_one_side_only_is_an_infinite_difference():
    script = Script()
    script.forced.move("a", 1, -np.inf, token=2)
    (found,) = check_forced(script.play())
    assert found.difference == np.inf
    script.want["a"].logprobs[1, 2] = -np.inf
    assert check_forced(script.play()) == []


def test_steps_after_another_token_are_not_compared():
    script = Script()
    script.free.change("a", 1, token=7)
    for step in (2, 3, 4):
        script.free.move("a", step, 3.0)
    assert check_forced(script.play()) == []


def test_a_removed_row_is_compared_as_far_as_it_came():
    script = Script()
    script.forced.move("c", 1, 0.5)
    (found,) = check_forced(script.play())
    assert (found.request_id, found.step, found.row) == ("c", 1, 2)


def test_the_third_run_is_left_to_the_check_of_stability():
    script = Script()
    script.repeat_forced().move("a", 0, 1.0)
    assert check_forced(script.play()) == []


def without_logprobs(take):
    for name, count in (("a", 5), ("b", 3), ("c", 2)):
        for step in range(count):
            take.change(name, step, logprobs=None)


def test_the_chosen_tokens_logprob_is_compared_where_it_is_all_there_is():
    script = Script()
    without_logprobs(script.free)
    assert check_forced(script.play()) == []
    script.free.change("b", 2, token_logprob=-3.0)
    (found,) = check_forced(script.play())
    assert (found.request_id, found.step, found.mode) == ("b", 2, Mode.FREE)


def test_without_numbers_or_tokens_there_is_nothing_to_measure():
    script = Script()
    without_logprobs(script.free)
    script.free.change("b", 2, token_logprob=None)
    play = script.play()
    assert measure(play, play.traces[1], "b") is None
    for moment in script.forced.moments:
        moment.events = []
    assert measure(script.play(), script.play().traces[0], "a") is None


@pytest.mark.parametrize(
    ("got", "want", "steps"),
    [((1, 2, 3), (1, 2, 3), 3), ((1, 9, 3), (1, 2, 3), 2), ((1,), (1, 2), 1), ((), (1,), 0)],
)
def test_common_steps_end_with_the_first_other_token(got, want, steps):
    assert common_steps(Stream(got, None), Stream(want, None)) == steps
