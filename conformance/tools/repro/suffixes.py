"""A short table that gives each of many paths its value: by the end of the path."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

V = TypeVar("V", bound=Hashable)


Endings = str | tuple[str, ...]


def by_suffix(values: Mapping[str, V]) -> list[tuple[Endings, V]]:
    """Rows of one or more path endings, and the value of the paths that end so.

    A path, with a slash before it, has the value of the first row of which it ends like one of the
    endings. The last row has the ending ``""``: all other paths have its value.
    """
    groups: dict[V, list[str]] = {}
    for path, value in values.items():
        groups.setdefault(value, []).append(f"/{path}")
    endings = {
        value: _endings(mine, [p for other, ps in groups.items() if other != value for p in ps])
        for value, mine in groups.items()
    }
    # What takes the most words is what all others are.
    rest = max(endings, key=lambda value: sum(map(len, endings[value])))
    rows: list[tuple[Endings, V]] = [
        (tuple(words) if len(words) > 1 else words[0], value)
        for value, words in endings.items()
        if value != rest
    ]
    return [*rows, ("", rest)]


def value_of(path: str, rows: list[tuple[Endings, V]]) -> V:
    """What the rows give a path."""
    return next(value for endings, value in rows if f"/{path}".endswith(endings))


def _endings(mine: list[str], others: list[str]) -> list[str]:
    """The fewest, shortest endings, each from a point on, that all of mine have and no other.

    A path that other paths end like is named whole.
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
