"""Things in groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(things: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """The things by their keys, in the order in which the keys first occur."""
    found: dict[K, list[V]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found
