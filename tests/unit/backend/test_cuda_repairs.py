"""Products in the form that CUDA gets right: the same numbers, other strides, fewer rows."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from conformance.backend.cuda_repairs import (
    rows_are_multiplied_in_pieces,
    rows_of_experts_stand_apart,
)
from conformance.core.faults.declaration import Hits


def strides(x: mx.array) -> list[int]:
    mx.eval(x)
    view = memoryview(x)
    assert view.strides is not None
    return [stride // view.itemsize for stride in view.strides]


def test_an_expanded_axis_gets_the_stride_of_its_rows(monkeypatch: Any) -> None:
    seen = []
    monkeypatch.setattr(mx, "gather_mm", lambda x, *_, **__: seen.append(strides(x)))
    rows, hits = mx.expand_dims(mx.random.normal((5, 7)), 1), Hits()
    mx.gather_mm(rows, rows)
    with rows_of_experts_stand_apart(hits):
        mx.gather_mm(rows, rows)
    assert seen == [[7, 1, 1], [7, 7, 1]]
    assert hits.count == 1


@pytest.mark.parametrize(("rows", "group"), [(32, 128), (33, 128), (70, 128), (70, 64)])
def test_pieces_give_what_the_whole_gives(monkeypatch: Any, rows: int, group: int) -> None:
    weights = mx.quantize(mx.random.normal((64, 128)), group_size=group, bits=2)
    x, options = mx.random.normal((2, rows, 128)), {"group_size": group, "bits": 2}
    right, hits = mx.quantized_matmul, Hits()
    whole = right(x, *weights, transpose=True, **options)

    def limited(part: mx.array, *args: Any, **more: Any) -> mx.array:
        if group == 128 and part.shape[-2] > 32:
            raise RuntimeError("invalid argument")
        return right(part, *args, **more)

    monkeypatch.setattr(mx, "quantized_matmul", limited)
    with rows_are_multiplied_in_pieces(hits):
        got = mx.quantized_matmul(x, *weights, transpose=True, **options)
    assert mx.abs(got - whole).max().item() < 1e-4
    assert hits.count == (group == 128 and rows > 32)
