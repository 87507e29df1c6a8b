"""Products in the form that CUDA gets right: the same numbers, other strides, fewer rows."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import pytest

from conformance.backend.cuda_repairs import (
    rows_are_multiplied_in_pieces,
    rows_of_experts_stand_apart,
)
from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_lm.mends.on_cuda import choice_of_glm4_moe
from conformance.plugins.mlx_vlm.mends.on_cuda import choice_of_deepseek_v3


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


@pytest.mark.parametrize(
    ("module", "mend", "dtype", "unit"),
    [
        ("mlx_lm.models.glm4_moe", choice_of_glm4_moe, mx.float16, 2**-10),
        ("mlx_vlm.models.deepseek_v3.language", choice_of_deepseek_v3, mx.bfloat16, 2**-7),
    ],
)
def test_one_unit_in_the_last_place_chooses_no_other_expert(module, mend, dtype, unit):
    def asked(logits):
        gates, bias = mx.array([logits], dtype), mx.zeros(len(logits))
        select = importlib.import_module(module).group_expert_select
        experts, shares = select(gates, bias, 1, 1, 1, 2.5, True)
        return dict(zip(experts[0].tolist(), shares[0].tolist(), strict=True))

    hits = Hits()
    first, second = [1.0, 1.0 + unit, 0.0], [1.0 + unit, 1.0, 0.0]
    assert asked(first).keys() != asked(second).keys()
    with mend.repair(hits):
        one, other = asked(first), asked(second)
    assert one.keys() == other.keys() == {0, 1, 2}
    assert all(abs(one[expert] - other[expert]) < unit for expert in one)
    assert sum(one.values()) == pytest.approx(2.5)
    assert hits.count == 2
