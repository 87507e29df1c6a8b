"""Results made by hand."""

import functools

import pytest
from results_by_hand import make_finding, make_result

from conformance.core.verdict import Verdict


@pytest.fixture
def finding():
    return functools.partial(make_finding, what="the token differs", request_id="r2", step=7)


@pytest.fixture
def result():
    plain = {"max_abs_diff": 0.5, "ratio": None, "first_bad_step": None, "device": "cpu"}

    def make(case="mlx_lm/llama/ragged/float32/0", verdict=Verdict.EXACT, **changes):
        return make_result(case, verdict, **{**plain, "evidence": (), **changes})

    return make
