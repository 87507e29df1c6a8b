"""Parameters are looked at one by one."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from conformance.backend.checkpoint import cast, fingerprint, first_not_finite


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_the_first_that_is_not_finite_is_named(dtype, number):
    right = mx.ones((2, 2), dtype)
    wrong = mx.array([1.0, float(number)]).astype(dtype)
    packed = mx.array([2**32 - 1], mx.uint32)
    assert first_not_finite({"a": right, "b": packed, "c": wrong}) == "c"
    assert first_not_finite({"a": right, "b": packed}) is None


def test_each_is_let_go():
    found = {"a": mx.ones(2), "b": mx.ones(2)}
    first_not_finite(found)
    assert not found


class Model(nn.Module):
    def __init__(self, keeps_back=None):
        super().__init__()
        self.packed = nn.QuantizedLinear(64, 8, group_size=32, bits=4)
        self.plain = nn.Linear(4, 4)
        if keeps_back:
            self.cast_predicate = lambda path: keeps_back not in path


def dtypes(model):
    return {path: value.dtype for path, value in tree_flatten(model.parameters())}


def test_scales_are_cast_and_packed_weights_are_not():
    model = Model()
    before = mx.array(model.packed.weight)
    cast(model, "bfloat16")
    found = dtypes(model)
    assert found.pop("packed.weight") == mx.uint32
    assert set(found.values()) == {mx.bfloat16}
    assert mx.array_equal(model.packed.weight, before)


def test_what_the_model_keeps_back_stays():
    model = Model(keeps_back="plain.bias")
    cast(model, "float16")
    assert dtypes(model)["plain.bias"] == mx.float32
    assert dtypes(model)["plain.weight"] == mx.float16


def test_in_float32_nothing_is_kept_back():
    model = Model(keeps_back="plain.bias")
    cast(model, "float16")
    model.plain.bias = model.plain.bias.astype(mx.float16)
    cast(model, "float32")
    assert dtypes(model)["plain.bias"] == mx.float32


class Small(nn.Module):
    def __init__(self, value=1.0, dtype=mx.float32):
        super().__init__()
        self.weight = mx.array([[1.0, 2.0], [3.0, value]], dtype)
        self.scale = mx.array(0.5, dtype)
        self.norm = nn.RMSNorm(4)


def test_equal_parameters_have_one_hash():
    assert fingerprint(Small()) == fingerprint(Small())


@pytest.mark.parametrize(
    "other",
    [
        lambda: Small(1.0000001),
        lambda: Small(dtype=mx.bfloat16),
        lambda: changed("bias", mx.zeros(2)),
        lambda: changed("weight", mx.array([[1.0, 2.0, 3.0, 1.0]])),
        lambda: changed("weight", mx.array([[1.0, 3.0], [2.0, 1.0]])),
        lambda: changed("weight", Small().weight > 2),
    ],
    ids=["value", "dtype", "path", "shape", "order", "bool"],
)
def test_other_parameters_have_another(other):
    assert fingerprint(other()) != fingerprint(Small())


def test_a_view_has_the_hash_of_what_it_shows():
    assert fingerprint(changed("weight", Small().weight.T.T)) == fingerprint(Small())


def changed(name, value):
    model = Small()
    setattr(model, name, value)
    return model
