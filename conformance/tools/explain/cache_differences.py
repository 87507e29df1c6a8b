"""Compares the contents of a cache for a row of a batch with those for the single stream.

A single stream's columns are looked up anywhere in the row, in the order of time: a batch cache may
store them in any place, as long as its counts are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from conformance.backend.module_hooks import CacheState
from conformance.tools.explain.activations import relative


@dataclass(frozen=True)
class EntryDifference:
    """The first difference in a cache entry.

    Attributes:
        place: of the cache among the model's caches: ``3`` or ``3.0``.
        kind: class of the cache.
        part: ``keys``, ``values.1``, ``offset``, ``left_padding``, ...
        row: on the batch axis.
        column: the position of the column's token; ``None`` for states and counts.
        error: relative; infinite if a column is missing.
        expected: the expected count; ``got`` is the row's count.
        misplaced: the column is there, but before the column of an earlier token.
    """

    place: str
    kind: str
    part: str
    row: int
    column: int | None
    error: float
    expected: str = ""
    got: str = ""
    misplaced: bool = False


def entry_differences(
    got: CacheState,
    want: CacheState,
    *,
    row: int,
    done: int,
    exact: bool,
    level: float,
    counted: bool,
    ahead: int = 0,
) -> Iterator[EntryDifference]:
    """The differences between a row and its single stream when both hold ``done`` tokens.

    Args:
        exact: ``want`` holds exactly ``done`` tokens, so states and windows can be compared.
        level: relative errors up to this are rounding.
        counted: the row's counts are settled, as they are while it decodes.
        ahead: columns of padding that the next pass adds.
    """
    # A cache of pooled tokens counts pools, so its offset is not a number of tokens.
    if counted and int(want.counts.get("offset", [-1])[0]) >= done:
        yield from _counts(got, row=row, done=done, ahead=ahead)
    for name, array in want.arrays.items():
        mine = got.arrays.get(name)
        if mine is None or row >= len(mine):
            continue
        wanted = _columns(want, array, done, exact=exact)
        if wanted is not None and mine.ndim == array.ndim == 4:
            yield from _missing(got, name, mine[row], wanted, row=row, done=done, level=level)
        elif exact and array.ndim == mine.ndim:
            if "offset" in want.counts and array.ndim == 4:
                continue
            # Other shapes are not compared: some states grow with the sequence.
            used = _in_use(want, name, array)
            error = relative(mine[row, : len(used)], used)
            if error > level:
                yield EntryDifference(got.place, got.kind, name, row, None, error)


def _in_use(want: CacheState, name: str, array: np.ndarray) -> np.ndarray:
    """The part of a single stream's array that is in use; for a buffer, its buffered tokens."""
    pooling = "remainder" in want.counts and name.startswith("buf")
    used: np.ndarray = array[0][: int(want.counts["remainder"][0])] if pooling else array[0]
    return used


def _counts(got: CacheState, *, row: int, done: int, ahead: int) -> Iterator[EntryDifference]:
    """Check that a row's next position is ``done``, and that earlier columns are padding.

    The counts of an empty batch may already include the padding of the next prompts.
    """
    if "_idx" in got.counts and _used(got) == 0:
        return
    for name, allowed in (("offset", (done, done)), ("left_padding", _padding(got, done))):
        values = got.counts.get(name)
        if values is None or allowed is None or len(values) <= row:
            continue
        found = int(values[row])
        # Padding that has been trimmed away is negative and counts as none.
        seen = max(found, 0) if name == "left_padding" else found
        known = {"offset": found + ahead, "left_padding": found - ahead}[name]
        if not (allowed[0] <= seen <= allowed[1] or allowed[0] <= known <= allowed[1]):
            wanted = str(allowed[0])
            yield EntryDifference(
                got.place, got.kind, name, row, None, float("inf"), wanted, str(found)
            )


def _padding(got: CacheState, done: int) -> tuple[int, int] | None:
    """Minimum and maximum number of columns before a row's first; ``None`` if the cache hides them.

    With a window, a row needs only as many columns as the next token may see.
    """
    if "_idx" not in got.counts or "offset" not in got.counts:
        return None
    size = got.counts.get("max_size")
    if size is not None and "rotated" not in got.counts:
        return None
    used = _used(got)
    needed = done if size is None else min(done, int(size[0]) - 1)
    return max(used - done, 0), max(used - needed, 0)


def _used(got: CacheState) -> int:
    """How many columns are in use: all of them once a ring buffer has rotated."""
    rotated = "rotated" in got.counts and bool(got.counts["rotated"][0])
    return int(got.counts["max_size" if rotated else "_idx"][0])


def _columns(want: CacheState, array: np.ndarray, done: int, *, exact: bool) -> np.ndarray | None:
    """``[n, features]``: the last columns of a single stream up to its ``done``-th token."""
    if array.ndim != 4 or "offset" not in want.counts:
        return None
    held = int(want.counts["offset"][0])
    columns: np.ndarray = np.moveaxis(array[0], 1, 0).reshape(array.shape[2], -1)
    if "max_size" in want.counts:
        if not exact:
            return None
        index = int(want.counts.get("_idx", want.counts["offset"])[0])
        if index < len(columns) and index < held:
            columns = np.concatenate([columns[index:], columns[:index]])
        else:
            columns = columns[:index]
        # With a window, a batch needs to keep only the columns that the next token may see.
        return columns[-min(len(columns), done, int(want.counts["max_size"][0]) - 1) :]
    begin = int(want.counts["start_position"][0]) if "start_position" in want.counts else 0
    if begin:
        return columns[: held - begin] if exact else None
    return columns[: min(held, done)]


def _missing(
    got: CacheState,
    name: str,
    mine: np.ndarray,
    wanted: np.ndarray,
    *,
    row: int,
    done: int,
    level: float,
) -> Iterator[EntryDifference]:
    """The first wanted column that is missing from the row ``[heads, columns, features]``."""
    columns = np.moveaxis(mine, 1, 0).reshape(mine.shape[1], -1)
    if columns.shape[-1] != wanted.shape[-1] or not wanted.size:
        return
    columns = _in_order_of_time(got, columns)
    scale = max(float(np.abs(wanted).max()), 1e-6)
    next_one = 0
    for index, vector in enumerate(wanted):
        apart = np.nan_to_num(
            np.abs(columns - vector).max(axis=1) / scale, nan=np.inf, posinf=np.inf
        )
        near = np.flatnonzero(apart <= level)
        later = near[near >= next_one]
        if not len(later):
            at = done - len(wanted) + index
            error = float(apart.min())
            yield EntryDifference(
                got.place, got.kind, name, row, at, error, misplaced=bool(len(near))
            )
            return
        next_one = int(later[0]) + 1


def _in_order_of_time(got: CacheState, columns: np.ndarray) -> np.ndarray:
    """The columns in the order of time; the oldest column of a ring buffer comes first."""
    if "max_size" not in got.counts or "_idx" not in got.counts:
        return columns
    index = int(got.counts["_idx"][0])
    # A window of one row does not record whether it has rotated.
    past = index < min(len(columns), int(got.counts.get("offset", [0])[0]))
    rotated = bool(got.counts["rotated"][0]) if "rotated" in got.counts else past
    return np.concatenate([columns[index:], columns[:index]]) if rotated else columns
