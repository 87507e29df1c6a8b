"""Properties of a result."""

from conformance.report.junit import properties
from conformance.verdict import Verdict


def test_figures_are_text_under_our_prefix(result):
    found = dict(properties(result(verdict=Verdict.DRIFT, first_bad_step=0, known="x")))
    assert found == {
        "conformance.case": "mlx_lm/llama/ragged/float32/0",
        "conformance.verdict": "drift",
        "conformance.expected": "false",
        "conformance.known": "x",
        "conformance.max_abs_diff": "0.5",
        "conformance.noise": "1e-05",
        "conformance.first_bad_step": "0",
        "conformance.forward_seconds": "0.25",
        "conformance.device": "cpu",
        "conformance.versions": "mlx 0.32.4, mlx-lm 0.32.2",
    }


def test_what_was_not_measured_is_left_out(result):
    names = {name for name, _ in properties(result(max_abs_diff=None, noise=None))}
    assert "conformance.max_abs_diff" not in names
    assert "conformance.known" not in names
