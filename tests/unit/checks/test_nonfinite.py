"""NaN and infinity: at the first step that has them, once a request and run."""

import numpy as np
import pytest
from miniatures.plays import Script

from conformance.checks.nonfinite import check_nonfinite
from conformance.core.verdict import Verdict


def test_a_right_play_has_no_finding():
    assert check_nonfinite(Script().play()) == []


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (np.nan, "1 NaN and 0 +inf of 8"),
        (np.inf, "0 NaN and 1 +inf of 8"),
    ],
)
def test_one_entry_is_enough(planted, words):
    script = Script()
    script.forced.move("b", 1, planted, token=3)
    script.forced.move("b", 2, planted, token=3)
    (found,) = check_nonfinite(script.play())
    assert found.verdict is Verdict.NAN
    assert (found.request_id, found.step, found.row, found.mode) == ("b", 1, 1, "forced")
    assert found.got == words


def test_all_minus_infinity_is_no_distribution():
    script = Script()
    script.free.move("a", 0, -np.inf)
    (found,) = check_nonfinite(script.play())
    assert (found.verdict, found.request_id, found.step) == (Verdict.NAN, "a", 0)


def test_a_masked_token_is_a_number():
    script = Script()
    script.forced.move("b", 1, -np.inf, token=3)
    assert check_nonfinite(script.play()) == []


def test_the_chosen_tokens_logprob_is_looked_at_where_it_is_all_there_is():
    script = Script()
    script.free.change("a", 2, logprobs=None, token_logprob=float("nan"))
    (found,) = check_nonfinite(script.play())
    assert (found.request_id, found.step, found.got) == ("a", 2, "1 NaN and 0 +inf of 1")


def test_the_third_run_is_looked_at_too():
    script = Script()
    script.repeat_forced().move("a", 0, np.nan)
    assert [f.verdict for f in check_nonfinite(script.play())] == [Verdict.NAN]


def test_a_token_without_any_number_has_none_that_is_wrong():
    script = Script()
    script.free.change("a", 2, logprobs=None, token_logprob=None)
    assert check_nonfinite(script.play()) == []
