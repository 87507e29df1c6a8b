"""Results made by hand."""

import pytest

from conformance.verdict import CaseResult, Finding, Verdict


@pytest.fixture
def finding():
    def make(verdict=Verdict.DIVERGED, **changes):
        values = {
            "check": "tokens",
            "what": "the token differs",
            "schedule": "long_and_short",
            "mode": "free",
            "request_id": "r2",
            "step": 7,
            "row": 1,
            "expected": "token 17",
            "got": "token 93",
            "margin": 0.42,
            "difference": 1.25,
            "noise": 1.2e-5,
            "cause": "left padding is not masked",
        }
        return Finding(verdict=verdict, **{**values, **changes})

    return make


@pytest.fixture
def result():
    def make(case="mlx_lm/llama/ragged/float32/0", verdict=Verdict.EXACT, **changes):
        engine, family, scenario, dtype, seed = case.split("/")
        values = {
            "expected": verdict.good,
            "max_abs_diff": 0.5,
            "noise": 1e-5,
            "first_bad_step": None,
            "evidence": (),
            "versions": {"mlx": "0.32.4", "mlx-lm": "0.32.2"},
            "device": "cpu",
            "seconds": 0.5,
            "forward_seconds": 0.25,
        }
        return CaseResult(
            case=case,
            engine=engine,
            family=family,
            scenario=scenario,
            dtype=dtype,
            seed=int(seed),
            verdict=verdict,
            **{**values, **changes},
        )

    return make
