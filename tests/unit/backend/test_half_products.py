"""Experts' products in half precision are those of float32, rounded."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.switch_layers import SwitchLinear

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


class Experts(nn.Module):
    """A model with experts of mlx-lm."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4), SwitchLinear(4, 4, 2)]


@pytest.mark.parametrize(
    ("model", "dtype", "needed"),
    [
        (Experts(), "bfloat16", True),
        (Experts(), "float32", False),
        (nn.Linear(4, 4), "bfloat16", False),
    ],
)
def test_scripts_of_experts_in_half_precision_need_it(products, model, dtype, needed):
    assert half_products.needed_by(model, dtype) is needed


def test_no_script_needs_it_where_mlx_has_it(monkeypatch):
    monkeypatch.setattr(mx, "gather_mm", half_products._RIGHT)  # as on a GPU
    assert not half_products.needed_by(Experts(), "bfloat16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_a_cpu_a_product_has_the_same_bits_beside_others(dtype):
    assert half_products.same_beside_others(dtype)
