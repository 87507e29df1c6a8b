"""Casts a loaded checkpoint's parameters to a working dtype."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_map_with_path


def cast(model: Module, dtype: str) -> None:
    """Cast all floating parameters to ``dtype``, except those that the model excludes.

    Scales of quantized weights are cast, packed weights are not.
    """
    wanted: mx.Dtype = getattr(mx, dtype)
    castable = getattr(model, "cast_predicate", None) if dtype != "float32" else None

    def one(path: str, value: mx.array) -> mx.array:
        floating = mx.issubdtype(value.dtype, mx.floating)
        return value.astype(wanted) if floating and (not castable or castable(path)) else value

    model.update(tree_map_with_path(one, model.parameters()))
