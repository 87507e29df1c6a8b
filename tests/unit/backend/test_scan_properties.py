"""Recurrent scans: both libraries hold the recurrences, and each property detects a defect."""

import mlx.core as mx
import pytest
from mlx_lm.models import gated_delta as lm_delta
from mlx_lm.models import ssm as lm_ssm
from mlx_vlm.models import gated_delta as vlm_delta
from mlx_vlm.models import ssm as vlm_ssm

from conformance.backend.scan_properties import delta_rule_properties, state_space_properties
from conformance.backend.uncompiled import uncompiled
from conformance.power.properties import load_function_defects


@pytest.fixture(autouse=True)
def without_compiling():
    with uncompiled():
        yield


def problems(ssm, delta):
    found = state_space_properties(ssm) if ssm else []
    found += delta_rule_properties(delta) if delta else []
    return {p.name.removeprefix("scans: "): p.problem() for p in found}


def wrong(ssm, delta):
    return {f"scans: {name}" for name, problem in problems(ssm, delta).items() if problem}


def test_they_hold_for_the_libraries_but_for_what_is_known():
    assert wrong(lm_ssm, lm_delta) == set()
    known = {entry.property for entry in load_function_defects()}
    assert wrong(vlm_ssm, vlm_delta) == {n for n in known if n.startswith("scans")}


def broken_ssm(**broken):
    """Changes of what ssm_attn and ssm_update are given or give."""
    right = lm_ssm.ssm_attn

    def call(*args, **options):
        options = {n: v for n, v in options.items() if n not in broken}
        return right(*args, **options)

    return call


@pytest.mark.parametrize(
    ("left_out", "found"),
    [
        ("time_step_limit", {"state space"}),
        ("state", {"state space", "padding", "padding behind"}),
        ("mask", {"padding", "padding behind"}),
        ("lengths", {"padding", "padding behind"}),
    ],
)
def test_a_scan_that_leaves_something_out_is_found(monkeypatch, left_out, found):
    monkeypatch.setattr(lm_ssm, "ssm_attn", broken_ssm(**{left_out: True}))
    assert wrong(lm_ssm, None) == {f"scans: {name}" for name in found}


def test_a_delta_rule_that_forgets_padding_is_found(monkeypatch):
    right = lm_delta.gated_delta_ops
    monkeypatch.setattr(lm_delta, "gated_delta_ops", lambda *a: right(*a[:6], None))
    assert wrong(None, lm_delta) == {"scans: delta rule"}


def test_gates_and_states_of_drafts_are_looked_at(monkeypatch):
    right = vlm_delta.compute_g_safe
    monkeypatch.setattr(vlm_delta, "compute_g_safe", lambda *a: right(*a) * 1.001)
    assert "-2.0" in problems(None, vlm_delta)["delta rule"]


def test_heads_that_are_not_of_length_one_are_found(monkeypatch):
    monkeypatch.setattr(lm_delta, "normalize_qk", lambda q, k, **_: (q, k))
    assert "length one" in problems(None, lm_delta)["what goes with it"]


def test_a_state_in_half_precision_is_found(monkeypatch):
    right = lm_ssm.ssm_attn

    def halved(x, *args, **options):
        out, state = right(x, *args, **options)
        return out, state.astype(x.dtype)

    monkeypatch.setattr(lm_ssm, "ssm_attn", halved)
    assert str(mx.bfloat16) in problems(lm_ssm, None)["state space"]
