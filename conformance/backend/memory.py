"""Dirties free memory: MLX checks no bounds, so a read past the end finds what lies there."""

from __future__ import annotations

import mlx.core as mx

# Element counts of typical small buffers; a freed buffer is given to the next request of its size.
_SIZES = (64, 256, 1024, 4096, 12288, 65536)


def churn(rounds: int = 2) -> None:
    """Fill buffers of many sizes with NaN and huge numbers, then give them back."""
    for index in range(rounds):
        value = float("nan") if index % 2 == 0 else 1e9
        held = [mx.full((size,), value, mx.float32) for size in _SIZES for _ in range(4)]
        mx.eval(held)
        del held
