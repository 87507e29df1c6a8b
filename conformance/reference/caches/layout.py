"""The columns of a row's keys in the padded batch, and which of them each query may see.

Position ``p`` of every row is in column ``p``, and queries and keys are padded on the right, so a
model's use of absolute columns (blocks, sinks, learned positions) is right::

    row of 3 + 2 tokens   k k k n n . .      k: kept from before   n: new   .: padding
    row of 0 + 4 tokens   n n n n . . .
    row of 6 + 1 tokens   k k k k k k n

A rotating cache returns its keys in the order of time, so each column is a position minus a number
that is the same for all keys of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class Row:
    """One row of a pass: ``kept`` earlier keys that are still seen, and ``new`` tokens."""

    kept: int
    new: int

    @property
    def total(self) -> int:
        """The number of key columns that the row fills."""
        return self.kept + self.new


def width(rows: Sequence[Row]) -> int:
    """The number of key columns of the batch."""
    return max(row.total for row in rows)


def pad(x: mx.array, columns: int) -> mx.array:
    """``[1, heads, tokens, dim]`` with zeros behind it, ``[1, heads, columns, dim]``."""
    missing = columns - x.shape[2]
    return mx.pad(x, [(0, 0), (0, 0), (0, missing), (0, 0)]) if missing else x


def own(x: mx.array, row: int) -> mx.array:
    """Row ``row`` of ``[rows, ...]`` as ``[1, ...]`` in a buffer of its own.

    A slice would keep the whole batch in memory; ``mx.contiguous`` does so for small batches.
    """
    return x[mx.array([row])]


def mask(rows: Sequence[Row], length: int, window: int | None) -> mx.array:
    """Which keys each query sees: causal, within ``window`` columns, and no padding.

    Args:
        length: columns of queries; a row's last ``length - row.new`` are padding, and see the same
            keys as its last real query, so that no value is undefined.

    Returns: bool ``[rows, 1, length, width]``.
    """
    kept = mx.array([row.kept for row in rows])[:, None, None]  # [rows, 1, 1]
    last = mx.array([row.new - 1 for row in rows])[:, None, None]  # [rows, 1, 1]
    query = kept + mx.minimum(mx.arange(length)[None, :, None], last)  # [rows, length, 1]
    key = mx.arange(width(rows))[None, None, :]  # [1, 1, width]
    seen = key <= query  # [rows, length, width]
    if window is not None:
        seen = seen & (key > query - window)
    return seen[:, None]
