"""Which tokens a query sees: applies a mask to keys whose tokens are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from conformance.power.caches.finding import Problem, Problems
from conformance.power.caches.rows import Feed, Token

Visible = npt.NDArray[np.bool_]
Held = Sequence[Sequence[Token | None]]


def decoded(mask: Any, *, rows: int, width: int, columns: int) -> Visible | str:
    """Which query sees which column, ``[row, query, column]``; a message if it does not fit."""
    if mask is None:
        return np.ones((rows, width, columns), dtype=bool)
    if isinstance(mask, str):
        if mask != "causal":
            return f"a mask that no attention takes: {mask!r}"
        last = np.arange(columns - width, columns)[:, None]
        return np.broadcast_to(np.arange(columns) <= last, (rows, width, columns))
    given = np.asarray(mask if mask.dtype == mx.bool_ else mask.astype(mx.float32) > -1)
    shape = given.shape
    if given.ndim == 4:
        given = given[:, 0]
    try:
        return np.broadcast_to(given, (rows, width, columns))
    except ValueError:
        return f"a mask of {shape} for {rows} rows, {width} queries and {columns} keys"


def judged(feed: Feed, held: Held, visible: Visible | str, window: int | None) -> Problems:
    """Compare the tokens that each real query sees with the tokens that it may see."""
    if isinstance(visible, str):
        yield Problem("shape", visible)
        return
    for index, (row, tokens) in enumerate(zip(feed.after(), feed.grid, strict=True)):
        for query, token in enumerate(tokens):
            if not token.real:
                continue
            wanted = row.visible(token.position, window)
            seen = [t for t, ok in zip(held[index], visible[index, query], strict=True) if ok]
            # Keys carry their positions: their order does not matter.
            if sorted(map(str, seen)) == sorted(map(str, wanted)) and set(seen) == set(wanted):
                continue
            lost = set(wanted) - set(held[index])
            yield Problem("contents" if lost else "mask", _text(index, token, seen, wanted))
            return


def _text(index: int, query: Token, seen: Sequence[Token | None], wanted: Sequence[Token]) -> str:
    missing = [t for t in wanted if t not in seen]
    extra = [t for t in seen if t not in wanted]
    twice = len(seen) != len(set(seen))
    parts = []
    if missing:
        parts.append(f"does not see {_listed(missing)}")
    if extra:
        parts.append(f"sees {_listed(extra)}")
    if twice:
        parts.append("sees a column twice")
    return f"slot {index}: the query of {query} {' and '.join(parts) or 'sees others'}"


def _listed(tokens: Sequence[Token | None], most: int = 4) -> str:
    names = ["no token's vector" if t is None else f"{t} (written at {t.stamp})" for t in tokens]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
