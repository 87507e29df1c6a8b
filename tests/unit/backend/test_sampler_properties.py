"""Definitions of samplers: each detects a filter that is broken, and both libraries hold them."""

import math

import mlx.core as mx
import pytest
from mlx_lm import sample_utils as lm
from mlx_vlm import sample_utils as vlm

from conformance.backend.sampler_properties import sampler_properties
from conformance.backend.uncompiled import uncompiled
from conformance.power.properties import load_function_defects


@pytest.fixture(autouse=True)
def without_compiling():
    with uncompiled():
        yield


def problem(module, name):
    (found,) = [p for p in sampler_properties(module) if p.name == f"samplers: {name}"]
    return found.problem()


@pytest.mark.parametrize("module", [lm, vlm])
def test_they_hold_for_the_libraries(module):
    known = {entry.property for entry in load_function_defects() if module is vlm}
    wrong = {p.name for p in sampler_properties(module) if p.problem()}
    assert wrong == known & {p.name for p in sampler_properties(module)}


def broken_min_p(logprobs, share, least=1):
    return mx.where(logprobs < math.log(max(share, 1e-9)), -mx.inf, logprobs)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("apply_top_k", lambda x, k: x),
        ("apply_min_p", broken_min_p),
        ("apply_top_p", lambda x, p: mx.where(mx.exp(x) < 1 - p, -mx.inf, x)),
        ("apply_top_n_sigma", lambda x, n: x.astype(mx.float32)),
        ("apply_p_less", lambda x, t: x),
        ("apply_typical_p", vlm.apply_top_p),
        ("apply_xtc", lambda x, p, t, s: x),
    ],
)
def test_a_broken_filter_is_found(monkeypatch, name, broken):
    monkeypatch.setattr(vlm, name, broken)
    assert problem(vlm, name)


@pytest.mark.parametrize(
    "broken",
    [
        lambda **options: lambda x: mx.argmax(x, axis=-1),
        lambda **options: mx.random.categorical,
    ],
)
def test_a_sampler_that_leaves_out_an_option_is_found(monkeypatch, broken):
    monkeypatch.setattr(lm, "make_sampler", broken)
    assert problem(lm, "make_sampler")


def test_a_nucleus_that_is_cut_too_late_is_found(monkeypatch):
    right = vlm.top_p_sampling
    monkeypatch.setattr(vlm, "top_p_sampling", lambda x, p, t, key=None: right(x, 1.0, t, key=key))
    assert problem(vlm, "top_p_sampling")


def test_a_sampler_that_keeps_one_token_where_more_are_asked_for_is_found(monkeypatch):
    right = lm.make_sampler

    def forgetful(min_tokens_to_keep=1, **options):
        return right(**options)

    monkeypatch.setattr(lm, "make_sampler", forgetful)
    assert problem(lm, "apply_min_p that keeps more")
