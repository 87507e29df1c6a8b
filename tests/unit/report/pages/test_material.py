"""Results put together."""

import pytest
import results_by_hand

from conformance.core.errors import ReportError
from conformance.core.verdict import Verdict
from conformance.report.pages.material import merged


def test_files_are_put_together_by_case():
    one = results_by_hand.make_result("mlx_lm/b/ragged/float32/0")
    two = results_by_hand.make_result("mlx_lm/a/ragged/float32/0")
    assert merged([[one], [two]]) == (two, one)


def test_of_the_same_case_the_last_counts():
    old, new = results_by_hand.make_result(verdict=Verdict.CRASH), results_by_hand.make_result()
    assert merged([[old], [new]]) == (new,)


def test_nothing_at_all_is_reported():
    with pytest.raises(ReportError, match="nothing to report"):
        merged([[], []])
