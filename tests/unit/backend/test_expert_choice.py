"""All experts are asked: one unit in the last place of a router's logit changes nothing much."""

from __future__ import annotations

import importlib

import mlx.core as mx
import pytest

from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_lm.mends.on_cuda import choice_of_glm4_moe
from conformance.plugins.mlx_vlm.mends.on_cuda import choice_of_deepseek_v3


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
