"""Node ids of cases."""

import pytest

from conformance.app.pytest_plugin.options import GOLDEN_NODE, SUITE_NODE, case_of, golden_of

CASE = "mlx_lm/llama/ragged/float32/0"


@pytest.mark.parametrize("suffix", ["", "@mlx_lm/llama"])
def test_a_case_with_the_group_that_xdist_may_append(suffix):
    assert case_of(f"{SUITE_NODE}::{CASE}{suffix}") == CASE


@pytest.mark.parametrize(
    "nodeid", [f"{SUITE_NODE}::coverage[mlx_lm]", f"tests/test_own.py::{CASE}", SUITE_NODE, "gw0"]
)
def test_what_is_no_case(nodeid):
    assert case_of(nodeid) is None


@pytest.mark.parametrize("suffix", ["", "@mlx_lm/llama"])
def test_a_golden_belongs_to_its_family(suffix):
    nodeid = f"{GOLDEN_NODE}::golden[mlx_lm/llama]{suffix}"
    assert golden_of(nodeid) == "mlx_lm/llama"
    assert case_of(nodeid) is None


@pytest.mark.parametrize("nodeid", [f"{GOLDEN_NODE}::folder", f"{SUITE_NODE}::{CASE}", "gw0"])
def test_what_is_no_golden(nodeid):
    assert golden_of(nodeid) is None
