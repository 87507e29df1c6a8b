"""Things in groups, and what came, went and changed from one set of things to another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(things: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """The things by their keys, in the order in which the keys first occur."""
    found: dict[K, list[V]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found


@dataclass(frozen=True)
class BeforeAfter(Generic[K, V]):
    """Two sets of things by name, each in its own order.

    Attributes:
        came: the things that only the second set has.
        went: the things that only the first set has.
        both: the things that both have, as in the first and as in the second.
    """

    came: Mapping[K, V]
    went: Mapping[K, V]
    both: Mapping[K, tuple[V, V]]

    @property
    def changed(self) -> Mapping[K, tuple[V, V]]:
        """The things that both sets have and that are not equal."""
        return {name: pair for name, pair in self.both.items() if pair[0] != pair[1]}


def compared(before: Mapping[K, V], after: Mapping[K, V]) -> BeforeAfter[K, V]:
    """The differences between two sets of things by name; ``both`` is in the second's order."""
    return BeforeAfter(
        came={name: thing for name, thing in after.items() if name not in before},
        went={name: thing for name, thing in before.items() if name not in after},
        both={name: (before[name], thing) for name, thing in after.items() if name in before},
    )
