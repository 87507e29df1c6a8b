"""NaN and infinity: at the first step that has them, once a request and run."""

import numpy as np
import pytest
from miniatures.plays import Script

from conformance.checks.nonfinite import check_nonfinite
from conformance.core.verdict import Verdict


@pytest.mark.parametrize(
    ("planted", "token", "words"),
    [
        (np.nan, 3, "1 NaN and 0 +inf of 8"),
        (np.inf, 3, "0 NaN and 1 +inf of 8"),
        (-np.inf, None, "0 NaN and 0 +inf of 8"),  # of all tokens: no distribution
        (-np.inf, 3, ""),  # a masked token is a number
    ],
)
@pytest.mark.parametrize("run", ["forced", "free", "third"])
def test_the_first_step_that_has_one_is_reported(run, planted, token, words):
    script = Script()
    take = script.repeat_forced() if run == "third" else getattr(script, run)
    for step in (1, 2):
        take.move("b", step, planted, token=token)
    found = [
        (f.verdict, f.request_id, f.step, f.row, f.got) for f in check_nonfinite(script.play())
    ]
    assert found == ([(Verdict.NAN, "b", 1, 1, words)] if words else [])


@pytest.mark.parametrize(
    ("number", "found"), [(float("nan"), [("a", 2, "1 NaN and 0 +inf of 1")]), (None, [])]
)
def test_the_chosen_tokens_logprob_is_looked_at_where_it_is_all_there_is(number, found):
    script = Script()
    script.free.change("a", 2, logprobs=None, token_logprob=number)
    assert [(f.request_id, f.step, f.got) for f in check_nonfinite(script.play())] == found
