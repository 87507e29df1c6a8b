"""Caches whose model reckons with one number for all rows: rows of equal history alone.

``ChunkedKVCache`` and caches that a model brings itself have no batched form in the library: the
model makes its masks from one offset (``mlx_lm/models/llama4.py:232``,
``mlx_lm/models/deepseek_v41.py:974``), and its cache keeps groups that are full for every row at
once. No padding makes that right for rows of unequal history, so such rows go in passes of their
own; rows of equal history have arrays of equal shapes, which are stacked as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx


def stack(caches: Sequence[Any]) -> Any:
    """A cache of the same class that holds all rows. The rows' own stay as they are.

    Raises:
        ValueError: the rows differ in more than their numbers.
    """
    stacked = copy.copy(caches[0])
    for name, value in vars(caches[0]).items():
        values = [vars(cache)[name] for cache in caches]
        if isinstance(value, mx.array):
            setattr(stacked, name, mx.concatenate(values))  # [rows, ...]
        elif any(other != value for other in values):
            raise ValueError(f"rows of unequal history in one pass: {name} is {values}")
    return stacked


def split(stacked: Any, caches: Sequence[Any]) -> None:
    """Give each row its own of what ``stacked`` holds after the pass."""
    for name, value in vars(stacked).items():
        for row, cache in enumerate(caches):
            mine = mx.contiguous(value[row : row + 1]) if isinstance(value, mx.array) else value
            setattr(cache, name, mine)
