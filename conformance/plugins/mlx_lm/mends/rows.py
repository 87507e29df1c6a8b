"""What mends share: where each row's tokens end in a padded pass, and states taken there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx


def row_ends(cache: Any, columns: int) -> mx.array | None:
    """The column after each row's last token in a pass of ``columns``.

    ``None`` if the cache has no lengths, as when no row is padded.
    """
    lengths = getattr(cache, "lengths", None)
    return None if lengths is None else mx.clip(lengths, 0, columns)


def columns_before(x: mx.array, ends: mx.array, keep: int, axis: int = 1) -> mx.array:
    """``keep`` columns of each row that end at its own end.

    Args:
        x: ``keep`` columns from before the pass, then the pass's own, along ``axis``.
        ends: of each row, in columns of the pass.
    """
    shape = [1] * x.ndim
    shape[axis] = keep
    columns = mx.arange(keep).reshape(shape) + ends.reshape([-1] + [1] * (x.ndim - 1))
    return mx.take_along_axis(x, columns, axis=axis)


def where_inside(inside: mx.array, new: mx.array, old: mx.array | None) -> mx.array:
    """``new`` in the rows that have not ended yet, in others ``old`` or zeros."""
    rows = inside.reshape([-1] + [1] * (new.ndim - 1))
    return mx.where(rows, new, mx.zeros_like(new) if old is None else old)


def column_by_column(
    step: Callable[[slice], Sequence[mx.array]], cache: Any, ends: mx.array, columns: int
) -> list[mx.array]:
    """Run a recurrent layer over a padded pass; the states of a row that has ended stay.

    Args:
        step: the layer, for some columns; gives arrays ``[rows, columns, ...]``.
        cache: its states, which ``step`` changes.
        ends: of each row.

    Returns: what ``step`` gives, for all columns.
    """
    found = []
    for column in range(columns):
        before = list(cache.cache)
        found.append(step(slice(column, column + 1)))
        inside = column < ends
        for index, (old, new) in enumerate(zip(before, cache.cache, strict=True)):
            if new is not None:
                cache[index] = where_inside(inside, new, old)
    cache.advance(columns)
    return [mx.concatenate(list(parts), axis=1) for parts in zip(*found, strict=True)]
