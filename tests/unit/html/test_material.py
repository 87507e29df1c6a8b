"""Results put together."""

import pytest
import results_by_hand

from conformance.errors import ReportError
from conformance.html.material import merged
from conformance.verdict import Verdict


def test_files_are_put_together_by_case():
    one = results_by_hand.make_result("mlx_lm/b/ragged/float32/0")
    two = results_by_hand.make_result("mlx_lm/a/ragged/float32/0")
    assert merged([[one], [two]]) == (two, one)


def test_of_the_same_case_the_last_counts():
    old, new = results_by_hand.make_result(verdict=Verdict.CRASH), results_by_hand.make_result()
    assert merged([[old], [new]]) == (new,)


def test_nothing_at_all_is_told():
    with pytest.raises(ReportError, match="nothing to report"):
        merged([[], []])
