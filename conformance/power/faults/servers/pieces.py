"""Faults of an answer's pieces that both servers can have, whatever their pieces are called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from conformance.core.faults.declaration import Hits

Pieces = Iterator[Any]
Change = Callable[[Pieces], Pieces]
"""What comes of the pieces of each answer."""


def exchanged(hits: Hits) -> Change:
    """Two answers that begin one after the other go to each other's clients."""
    waiting: list[list[Pieces]] = []

    def change(pieces: Pieces) -> Pieces:
        mine = [pieces]
        if waiting:
            hits.hit()
            other = waiting.pop()
            mine[0], other[0] = other[0], mine[0]
        else:
            waiting.append(mine)
        while (piece := next(mine[0], None)) is not None:
            yield piece
        if mine in waiting:
            waiting.remove(mine)

    return change


def of_another(hits: Hits, *names: str, only: int | None = None) -> Change:
    """Each piece has these fields of the one that another request got last.

    Args:
        only: the piece that has them; none: all.
    """
    last: dict[int, tuple[Any, ...]] = {}
    numbers = itertools.count()

    def change(pieces: Pieces) -> Pieces:
        mine = next(numbers)
        for index, piece in enumerate(pieces):
            right = tuple(getattr(piece, name) for name in names)
            others = [found for who, found in last.items() if who != mine]
            if others and only in {None, index}:
                hits.hit_if(others[-1] != right)
                for name, value in zip(names, others[-1], strict=True):
                    setattr(piece, name, value)
            last[mine] = right
            yield piece
        last.pop(mine, None)

    return change


def ended_by_itself(hits: Hits, reason: str | None) -> str | None:
    """Of an answer that ends by its limit it is said that it ended by itself."""
    hits.hit_if(reason == "length")
    return "stop" if reason == "length" else reason
