"""A model's caches one by one, those within lists of caches included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def leaves(entries: Sequence[Any]) -> Iterator[Any]:
    """All caches, those within lists of caches included."""
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
