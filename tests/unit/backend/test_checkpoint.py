"""Parameters are looked at one by one."""

import mlx.core as mx
import pytest

from conformance.backend.checkpoint import first_not_finite


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
