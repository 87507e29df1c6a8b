"""Products that mlx 0.32.4 gets wrong on CUDA, asked for so that they are right (docs/gpu.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

# mlx/backend/cuda/quantized/qmm/qmm_naive.cu: from 33 rows on its tiles have 64.
ROWS_IN_A_TILE = 32


def standing_apart(x: mx.array) -> mx.array:
    """The same array with the strides of its shape, also along axes of one element."""
    return x.reshape(-1).reshape(x.shape)


def in_pieces(product: Callable[..., mx.array], x: mx.array, *args: Any, **options: Any) -> Any:
    """``product(x, ...)`` of ``[..., rows, columns]``, ``ROWS_IN_A_TILE`` rows at once."""
    pieces = [
        product(x[..., first : first + ROWS_IN_A_TILE, :], *args, **options)
        for first in range(0, x.shape[-2], ROWS_IN_A_TILE)
    ]
    return mx.concatenate(pieces, axis=-2)
