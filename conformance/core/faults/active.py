"""Which faults and mends are put in now: an engine with processes of its own puts them in there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar


class Counter(Protocol):
    """Who counts where a defect, or its repair, takes effect."""

    count: int


CounterT = TypeVar("CounterT", bound=Counter)


@functools.cache
def active() -> list[tuple[str, Counter]]:
    """The ``module:name`` of each that this process is inside of, with who counts its effects."""
    return []


def noted(
    injection: Callable[[CounterT], AbstractContextManager[None]],
) -> Callable[[CounterT], AbstractContextManager[None]]:
    """The same injection; while it is in, ``active`` has it."""

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
