"""Definitions of logits processors: each detects a broken one, and both libraries hold them."""

import mlx.core as mx
import pytest
from mlx_lm import sample_utils as lm
from mlx_vlm import sample_utils as vlm

from conformance.backend.processor_properties import processor_properties


def problem(module, name):
    (found,) = [p for p in processor_properties(module) if p.name == f"processors: {name}"]
    return found.problem()


@pytest.mark.parametrize("module", [lm, vlm])
def test_they_hold_for_the_libraries(module):
    assert {p.problem() for p in processor_properties(module)} == {""}


def by_a_share(penalty, context_size=20):
    def penalized(tokens, logits):
        logits[:, tokens[-context_size:]] /= penalty
        return logits

    return penalized


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("repetition", by_a_share),
        ("presence", lm.make_frequency_penalty),
        ("frequency", lambda penalty, context_size=30: lm.make_frequency_penalty(penalty, 30)),
    ],
)
def test_a_broken_penalty_is_found(monkeypatch, name, broken):
    monkeypatch.setattr(lm, f"make_{name}_penalty", broken)
    assert problem(lm, name)
    assert problem(lm, "together")


def test_a_penalty_below_zero_that_is_taken_is_found(monkeypatch):
    right = lm.make_repetition_penalty

    def lenient(penalty, context_size=20):
        return right(abs(penalty), context_size)

    monkeypatch.setattr(lm, "make_repetition_penalty", lenient)
    assert problem(lm, "repetition") == "a penalty of -0.5 is taken"


@pytest.mark.parametrize(
    "broken",
    [
        lambda **_: [lambda tokens, logits: logits],
        lambda **_: [],
        lambda logit_bias=None, **_: (
            [lambda tokens, logits: logits - mx.array(1.0)] if logit_bias else []
        ),
    ],
)
def test_processors_that_leave_out_or_add_something_are_found(monkeypatch, broken):
    monkeypatch.setattr(lm, "make_logits_processors", broken)
    assert problem(lm, "together")
