"""A hash of parameters: their paths, shapes, dtypes and bits, and nothing else."""

import mlx.core as mx
import pytest
from mlx import nn

from conformance.backend.fingerprint import fingerprint


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
