"""The faults and mends that are put in now; an engine's own processes put them in, too."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar


class Counter(Protocol):
    """Counts how often a defect, or its repair, takes effect."""

    count: int


CounterT = TypeVar("CounterT", bound=Counter)


@functools.cache
def active() -> list[tuple[str, Counter]]:
    """The ``module:name`` of each active fault or mend of this process, with its counter."""
    return []


def noted(
    injection: Callable[[CounterT], AbstractContextManager[None]],
) -> Callable[[CounterT], AbstractContextManager[None]]:
    """The same injection, listed in ``active`` while it is put in."""

    @functools.wraps(injection)
    @contextlib.contextmanager
    def entered(hits: CounterT) -> Iterator[None]:
        entry = (f"{injection.__module__}:{getattr(injection, '__name__', '')}", hits)
        with injection(hits):
            active().append(entry)
            try:
                yield
            finally:
                active().remove(entry)

    return entered
