"""A short table that maps paths to values by the endings of the paths."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


Endings = str | tuple[str, ...]


def by_suffix(values: Mapping[str, V]) -> list[tuple[Endings, V]]:
    """Rows of one or more path endings and the value of the paths with such an ending.

    A path, with a slash before it, has the value of the first row with one of its endings. The last
    row has the ending ``""``, which matches all other paths.
    """
    groups: dict[V, list[str]] = {}
    for path, value in values.items():
        groups.setdefault(value, []).append(f"/{path}")
    endings = {
        value: _endings(mine, [p for other, ps in groups.items() if other != value for p in ps])
        for value, mine in groups.items()
    }
    # The value with the longest endings becomes the last row.
    rest = max(endings, key=lambda value: sum(map(len, endings[value])))
    rows: list[tuple[Endings, V]] = [
        (tuple(ends) if len(ends) > 1 else ends[0], value)
        for value, ends in endings.items()
        if value != rest
    ]
    return [*rows, ("", rest)]


def value_of(path: str, rows: list[tuple[Endings, V]]) -> V:
    """The value of a path."""
    return next(value for endings, value in rows if f"/{path}".endswith(endings))


def _endings(mine: list[str], others: list[str]) -> list[str]:
    """Few, short endings, each starting at a dot, that cover all of ``mine`` and no other path.

    A path without such an ending is listed in full.
    """
    found: list[str] = []
    for path in mine:
        if path.endswith(tuple(found)):
            continue
        parts = path.split(".")
        short = ("." + ".".join(parts[-count:]) for count in range(1, len(parts)))
        free = (end for end in short if not any(other.endswith(end) for other in others))
        found.append(next(free, path))
    return found
