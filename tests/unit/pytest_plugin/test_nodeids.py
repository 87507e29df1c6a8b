"""Node ids of cases."""

import pytest

from conformance.pytest_plugin.nodeids import SUITE_NODE, case_of

CASE = "mlx_lm/llama/ragged/float32/0"


@pytest.mark.parametrize("suffix", ["", "@mlx_lm/llama"])
def test_a_case_with_the_group_that_xdist_may_append(suffix):
    assert case_of(f"{SUITE_NODE}::{CASE}{suffix}") == CASE


@pytest.mark.parametrize(
    "nodeid", [f"{SUITE_NODE}::coverage[mlx_lm]", f"tests/test_own.py::{CASE}", SUITE_NODE, "gw0"]
)
def test_what_is_no_case(nodeid):
    assert case_of(nodeid) is None
