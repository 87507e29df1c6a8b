"""Masks and attention: both libraries hold the definitions, and each property detects a defect."""

import mlx.core as mx
import pytest
from mlx_lm.models import base as lm
from mlx_vlm.models import base as vlm
from mlx_vlm.models import cache as vlm_cache

from conformance.backend.attention_properties import attention_properties

MODULES = {"mlx_lm": (lm, lm), "mlx_vlm": (vlm, vlm_cache)}


def wrong(library):
    return {
        p.name: found for p in attention_properties(*MODULES[library]) if (found := p.problem())
    }


@pytest.mark.parametrize("library", MODULES)
def test_they_hold_for_the_libraries(library):
    assert wrong(library) == {}


def test_a_window_that_is_one_too_wide_is_found(monkeypatch):
    right = lm.create_causal_mask

    def wide(*args, window_size=None, **more):
        return right(*args, window_size=window_size and window_size + 1, **more)

    monkeypatch.setattr(lm, "create_causal_mask", wide)
    assert set(wrong("mlx_lm")) == {"masks: causal", "masks: of a model"}


def test_a_cache_that_is_not_asked_for_its_mask_is_found(monkeypatch):
    monkeypatch.setattr(vlm, "create_ssm_mask", lambda hidden, cache=None: None)
    assert "recurrent layers" in wrong("mlx_vlm")["masks: of a model"]


def test_a_mask_of_rows_that_is_one_of_heads_is_found(monkeypatch):
    def aligned(mask, scores):
        return mask[:1] if mask.ndim == 4 and scores.ndim == 5 else mask

    monkeypatch.setattr(vlm, "align_attention_mask_to_scores", aligned)
    assert "4 heads" in wrong("mlx_vlm")["attention: quantized"]


def test_sinks_that_are_left_out_are_found(monkeypatch):
    right = lm.scaled_dot_product_attention

    def without(*args, sinks=None, **more):
        return right(*args, **more)

    monkeypatch.setattr(lm, "scaled_dot_product_attention", without)
    assert wrong("mlx_lm") == {"attention: which is taken": "sinks are taken with 8 bits"}


def test_attention_that_is_a_little_off_is_found(monkeypatch):
    name = "quantized_scaled_dot_product_attention"
    right = getattr(lm, name)
    monkeypatch.setattr(lm, name, lambda *a, **k: right(*a, **k) * mx.array(1.01))
    assert set(wrong("mlx_lm")) == {"attention: quantized", "attention: which is taken"}


def test_shares_that_are_summed_up_in_half_precision_are_found(monkeypatch):
    right = mx.softmax
    monkeypatch.setattr(mx, "softmax", lambda x, axis, precise: right(x, axis=axis))
    assert set(wrong("mlx_lm")) == {"attention: in half precision"}
