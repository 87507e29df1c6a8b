"""Products in the form that CUDA gets right: the same numbers, other strides, fewer rows."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from conformance.backend.cuda_products import ROWS_IN_A_TILE, in_pieces, standing_apart


def strides(x: mx.array) -> list[int]:
    mx.eval(x)
    view = memoryview(x)
    assert view.strides is not None
    return [stride // view.itemsize for stride in view.strides]


def test_an_expanded_axis_gets_the_stride_of_its_rows() -> None:
    rows = mx.random.normal((5, 7))
    expanded = mx.expand_dims(rows, 1)
    assert strides(expanded) == [7, 1, 1], "else CUDA has no defect here"
    apart = standing_apart(expanded)
    assert strides(apart) == [7, 7, 1]
    assert apart.tolist() == expanded.tolist()


@pytest.mark.parametrize("rows", [1, 32, 33, 70])
def test_pieces_give_what_the_whole_gives(rows: int) -> None:
    weights = mx.quantize(mx.random.normal((64, 128)), group_size=128, bits=2)
    x = mx.random.normal((2, rows, 128))
    seen = []

    def product(part: mx.array, *args: Any, **options: Any) -> mx.array:
        seen.append(part.shape[-2])
        return mx.quantized_matmul(part, *args, **options)

    options: dict[str, Any] = {"transpose": True, "group_size": 128, "bits": 2}
    got = in_pieces(product, x, *weights, **options)
    whole = mx.quantized_matmul(x, *weights, **options)
    assert max(seen) <= ROWS_IN_A_TILE
    assert sum(seen) == rows
    assert mx.abs(got - whole).max().item() < 1e-4
