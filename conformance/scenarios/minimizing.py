"""Makes what fails small while it fails in the same way: delta debugging, bounded by time.

A pass makes one aspect of a value smaller, for example its requests, its ingredients or its
lengths. All passes are repeated in their order until none finds anything smaller that fails.
Equal values give equal results, unless time is up.

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, TSE 2002.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
P = TypeVar("P")

Pass = Callable[[T, Callable[[T], bool]], T]
"""Makes a failing value smaller; is given the value, and whether a candidate fails too."""


class End(enum.StrEnum):
    """How a search ended."""

    SMALLEST = "nothing smaller fails"
    TIME = "time was up"


@dataclass(frozen=True)
class Minimum(Generic[T]):
    """The smallest failing value that was found.

    Attributes:
        tried: how many candidates were tried.
        end: whether there is nothing smaller, or time was up.
    """

    value: T
    tried: int
    end: End


class _TimeUpError(Exception):
    """No candidate may be tried any more."""


class _Search(Generic[T]):
    """Tries each candidate once, and remembers the last that fails."""

    def __init__(
        self, value: T, fails: Callable[[T], bool], key: Callable[[T], Hashable], seconds: float
    ) -> None:
        self.best = value
        self._fails, self._key = fails, key
        self._until = time.monotonic() + seconds
        self._known: dict[Hashable, bool] = {key(value): True}

    @property
    def tried(self) -> int:
        return len(self._known) - 1

    def __call__(self, candidate: T) -> bool:
        key = self._key(candidate)
        if key not in self._known:
            if time.monotonic() > self._until:
                raise _TimeUpError
            self._known[key] = self._fails(candidate)
        if self._known[key]:
            self.best = candidate
        return self._known[key]


def minimize(
    value: T,
    fails: Callable[[T], bool],
    passes: Sequence[Pass[T]],
    *,
    seconds: float,
    key: Callable[[T], Hashable],
) -> Minimum[T]:
    """The smallest value that fails, as far as the passes and the time reach.

    Args:
        value: fails, which is not tried again.
        fails: whether a candidate fails in the same way; called once for each.
        passes: the most effective first; each tries only candidates smaller than its value.
        seconds: limit of the search, except for the last candidate.
        key: equal for equal values.
    """
    search = _Search(value, fails, key, seconds)
    try:
        while True:
            before = key(value)
            for reduce in passes:
                value = reduce(value, search)
            if key(value) == before:
                return Minimum(value, search.tried, End.SMALLEST)
    except _TimeUpError:
        return Minimum(search.best, search.tried, End.TIME)


def fewest(
    parts: Sequence[P], fails: Callable[[Sequence[P]], bool], *, at_once: int | None = None
) -> list[P]:
    """The parts that are left when no run of others can be left out.

    Args:
        fails: whether it still fails with these parts alone.
        at_once: how many neighbours to leave out first, by default all; then always half of it.
    """
    kept = list(parts)
    count = len(kept) if at_once is None else at_once
    while count:
        start = 0
        while start < len(kept):
            rest = [*kept[:start], *kept[start + count :]]
            if fails(rest):
                kept = rest
            else:
                start += count
        count //= 2
    return kept


def fewer(parts: Callable[[T], Sequence[P]], keep: Callable[[T, Sequence[P]], T | None]) -> Pass[T]:
    """A pass that leaves out parts of a value.

    Args:
        parts: of a value.
        keep: the value with some of its parts; ``None`` if there is no such value.
    """

    def reduce(value: T, fails: Callable[[T], bool]) -> T:
        def fails_with(kept: Sequence[P]) -> bool:
            candidate = keep(value, kept)
            return candidate is not None and fails(candidate)

        every = parts(value)
        kept = fewest(every, fails_with)
        smaller = keep(value, kept) if len(kept) < len(every) else value
        return value if smaller is None else smaller

    return reduce


def first_of(candidates: Callable[[T], Iterable[T]]) -> Pass[T]:
    """A pass that goes on from the first of a value's smaller candidates that fails."""

    def reduce(value: T, fails: Callable[[T], bool]) -> T:
        while (found := next(filter(fails, candidates(value)), None)) is not None:
            value = found
        return value

    return reduce


def lower(
    numbers: Callable[[T], Iterable[tuple[P, int, int]]], put: Callable[[T, P, int], T | None]
) -> Pass[T]:
    """A pass that lowers numbers one after another, by halves.

    Args:
        numbers: of a value: their places, least values and values.
        put: the value with another number in a place; ``None`` if there is no such value.
    """

    def reduce(value: T, fails: Callable[[T], bool]) -> T:
        for place, least, number in list(numbers(value)):
            low, high, middle = least - 1, number, least
            while low < middle < high:
                candidate = put(value, place, middle)
                if candidate is not None and fails(candidate):
                    value, high = candidate, middle
                else:
                    low = middle
                middle = (low + high) // 2
        return value

    return reduce
