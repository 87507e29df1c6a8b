"""Which faults and mends are put in now: an engine with processes of its own puts them in there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.core.faults.declaration import Hits, Injection


@functools.cache
def active() -> list[tuple[str, Hits]]:
    """The ``module:name`` of each that this process is inside of, with who counts its effects."""
    return []


def noted(injection: Injection) -> Injection:
    """The same injection; while it is in, ``active`` has it."""

    @functools.wraps(injection)
    @contextlib.contextmanager
    def entered(hits: Hits) -> Iterator[None]:
        entry = (f"{injection.__module__}:{getattr(injection, '__name__', '')}", hits)
        with injection(hits):
            active().append(entry)
            try:
                yield
            finally:
                active().remove(entry)

    return entered
