"""Rotations of positions: both libraries hold the formulas, and each property detects a defect."""

import math
from types import SimpleNamespace

import mlx.core as mx
import pytest
from mlx_lm.models import rope_utils as lm
from mlx_vlm.models import rope_utils as vlm

from conformance.backend.rotation_properties import rotation_properties


def problems(module):
    return {p.name.removeprefix("rotations: "): p.problem() for p in rotation_properties(module)}


@pytest.mark.parametrize("module", [lm, vlm])
def test_they_hold_for_the_libraries(module):
    assert set(problems(module).values()) == {""}


def changed(right, change):
    def call(self, *args, **kwargs):
        return change(self, right(self, *args, **kwargs))

    return call


def slower(self, _):
    self._freqs = self._freqs * 1.001


@pytest.mark.parametrize("module", [lm, vlm])
@pytest.mark.parametrize("name", ["Llama3RoPE", "YarnRoPE", "ProportionalRoPE"])
def test_frequencies_that_are_a_little_off_are_found(monkeypatch, module, name):
    kind = getattr(module, name)
    monkeypatch.setattr(kind, "__init__", changed(kind.__init__, slower))
    assert "off" in problems(module)["of each config"]


@pytest.mark.parametrize("module", [lm, vlm])
def test_the_scale_of_long_sequences_is_looked_at(monkeypatch, module):
    own = SimpleNamespace(**{**vars(math), "sqrt": lambda x: math.sqrt(x) * 1.01})
    monkeypatch.setattr(module, "math", own)
    assert "SuScaledRoPE" in problems(module)["classes by themselves"]


def test_a_rotation_of_rows_at_one_offset_is_found(monkeypatch):
    right = mx.fast.rope

    def first_only(x, dims, *, offset, **more):
        one = offset[0] if isinstance(offset, mx.array) else offset
        return right(x, dims, offset=one, **more)

    monkeypatch.setattr(lm.mx.fast, "rope", first_only)
    assert "offset [37, 0, 5]" in problems(lm)["of each config"]


def test_a_scale_of_attention_and_a_missing_refusal_are_found(monkeypatch):
    monkeypatch.setattr(lm, "apply_yarn_mscale", lambda scale, config: scale)
    assert problems(lm)["scale"]
    monkeypatch.setattr(lm, "initialize_rope", lambda *_, **__: None)
    assert "is not" in problems(lm)["what is refused"]
