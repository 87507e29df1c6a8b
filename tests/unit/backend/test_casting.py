"""A checkpoint's floating parameters are cast, its packed ones are not."""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from conformance.backend.casting import cast


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
