"""Products of experts in half precision on a CPU, where mlx supports only float32."""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

_RIGHT = mx.gather_mm


def multiply_experts_in_half_precision() -> None:
    """Let ``mx.gather_mm`` take half precision on a CPU: multiplied in float32, then rounded.

    A GPU does so, too, as its products add up in float32. mlx 0.32.4 refuses it on a CPU
    (mlx/backend/cpu/masked_mm.cpp:372), so no model with experts could be run. Single streams and
    batches have the same product. On a GPU nothing changes.
    """
    if mx.default_device().type == mx.DeviceType.cpu and mx.gather_mm is _RIGHT:
        mx.gather_mm = _product


def needed_by(model: Module, dtype: str) -> bool:
    """Whether a script of this model needs it here."""
    experts = any(type(m).__module__.endswith(".switch_layers") for m in model.modules())
    return dtype != "float32" and experts and mx.gather_mm is _product


def _product(a: mx.array, b: mx.array, *args: Any, **options: Any) -> mx.array:
    if a.dtype != b.dtype or a.dtype not in (mx.bfloat16, mx.float16):
        return _RIGHT(a, b, *args, **options)
    wide = _RIGHT(a.astype(mx.float32), b.astype(mx.float32), *args, **options)
    return wide.astype(a.dtype)


@functools.cache
def same_beside_others(dtype: str) -> bool:
    """Whether a row's product with a matrix has the same bits as beside other rows, on a CPU."""
    if mx.default_device().type != mx.DeviceType.cpu:
        return False
    key, wide = mx.random.key(0), getattr(mx, dtype)
    rows = mx.random.normal((33, 64), key=key).astype(wide)
    matrix = mx.random.normal((96, 64), key=mx.random.key(1)).astype(wide)
    alone = mx.concatenate([row[None] @ matrix.T for row in rows])
    return all(mx.array_equal(rows[:n] @ matrix.T, alone[:n]).item() for n in (2, 4, 9, 33))
