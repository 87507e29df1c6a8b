"""A model's caches one by one, including caches within lists of caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx


def arrays(value: Any) -> Iterator[mx.array]:
    """All arrays of caches, of lists of caches, and of their attributes."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays(item)
    elif hasattr(type(value), "state"):
        yield from arrays(list(vars(value).values()))


def leaves(entries: Sequence[Any]) -> Iterator[Any]:
    """All caches, including caches within lists of caches."""
    for entry in entries:
        inner = getattr(entry, "caches", None)
        if inner is not None:
            yield from leaves(inner)
        elif entry is not None:
            yield entry


def places(entries: Sequence[Any]) -> Iterator[str]:
    """The place of each of ``leaves``: ``3`` or, within a list of caches, ``3.0``."""
    for index, entry in enumerate(entries):
        inner = getattr(entry, "caches", None)
        if inner is not None:
            yield from (f"{index}.{rest}" for rest in places(inner))
        elif entry is not None:
            yield str(index)


def floating(entry: Any) -> tuple[str, ...]:
    """The dtypes of a cache's floating arrays, sorted, except empty and one-axis arrays."""
    found = (array for array in arrays(entry) if array.ndim > 1 and array.size)
    kinds = {array.dtype for array in found if mx.issubdtype(array.dtype, mx.floating)}
    return tuple(sorted(str(kind).rpartition(".")[2] for kind in kinds))
