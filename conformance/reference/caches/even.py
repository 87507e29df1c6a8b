"""Caches whose model uses one offset for all rows: only rows of equal history share a pass.

``ChunkedKVCache`` and caches that a model defines itself have no batched form in the library: the
model makes its masks from one offset (``mlx_lm/models/llama4.py:232``,
``mlx_lm/models/deepseek_v41.py:974``), and its cache keeps groups that are full for every row at
once. No padding makes this right for rows of unequal history, so such rows have separate passes.
Rows of equal history have arrays of equal shapes, which are stacked unchanged. All layers of such a
model are stacked in this way, and the model gets caches of its own classes.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as library

from conformance.reference.caches import layout

APART = (
    "rows of unequal length in one pass are not supported: the model reckons with one offset for "
    "all rows"
)


def kinds(*names: str) -> tuple[type, ...]:
    """The library's classes of caches with these names; a release may lack some."""
    return tuple(getattr(library, name) for name in names if hasattr(library, name))


def stack(caches: Sequence[Any]) -> Any:
    """A cache of the same class with all rows; the rows' own caches do not change.

    Raises:
        ValueError: the rows differ in more than their numbers.
    """
    if len({numbers(cache) for cache in caches}) > 1:
        raise ValueError(f"rows of unequal history in one pass: {[numbers(c) for c in caches]}")
    stacked = copy.copy(caches[0])
    for name, value in vars(caches[0]).items():
        if isinstance(value, mx.array):
            # All rows: [rows, ...].
            setattr(stacked, name, mx.concatenate([_used(c, vars(c)[name]) for c in caches]))
    return stacked


def split(stacked: Any, caches: Sequence[Any]) -> None:
    """Give each row its part of ``stacked`` after the pass."""
    for name, value in vars(stacked).items():
        for row, cache in enumerate(caches):
            mine = layout.own(value, row) if isinstance(value, mx.array) else value
            setattr(cache, name, mine)


def numbers(cache: Any) -> tuple[Hashable, ...]:
    """All attributes of a cache that are not arrays, and the names of its arrays."""
    items = vars(cache).items()
    return tuple((name, "array" if isinstance(v, mx.array) else v) for name, v in items)


def _used(cache: Any, array: mx.array) -> mx.array:
    """``array`` without its spare part, whose size depends on the pieces of the prompt."""
    plain: Any = kinds("KVCache", "ChunkedKVCache")
    if isinstance(cache, plain):
        return array[..., : cache.offset - getattr(cache, "start_position", 0), :]
    return array
