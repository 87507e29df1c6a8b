"""Experts' products in half precision are those of float32, rounded."""

import mlx.core as mx
import pytest

from conformance.backend import half_products
from conformance.backend.half_products import multiply_experts_in_half_precision


@pytest.fixture
def products(monkeypatch):
    """mx.gather_mm as the module has it, given back afterwards."""
    monkeypatch.setattr(mx, "gather_mm", half_products._RIGHT)
    multiply_experts_in_half_precision()
    return mx.gather_mm


def operands(dtype):
    rows = mx.random.normal((5, 1, 8)).astype(dtype)
    experts = mx.random.normal((3, 8, 4)).astype(dtype)
    return rows, experts, mx.array([0, 2, 1, 1, 0])


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_half_precision_is_float32_rounded(products, dtype):
    rows, experts, chosen = operands(dtype)
    got = products(rows, experts, rhs_indices=chosen)
    wide = rows.astype(mx.float32) @ experts.astype(mx.float32)[chosen]
    assert got.dtype == dtype
    assert half_products.made_in_half_precision()
    assert mx.array_equal(got, wide.astype(dtype))


def test_float32_and_mixed_products_are_left_to_mlx(products):
    rows, experts, chosen = operands(mx.float32)
    got = products(rows, experts, rhs_indices=chosen)
    assert mx.array_equal(got, half_products._RIGHT(rows, experts, rhs_indices=chosen))
    assert products(rows.astype(mx.bfloat16), experts, rhs_indices=chosen).dtype == mx.float32


def test_what_others_put_there_stays(monkeypatch):
    def mine(*_):
        return None

    monkeypatch.setattr(mx, "gather_mm", mine)
    multiply_experts_in_half_precision()
    assert mx.gather_mm is mine
