"""The time of a run by named phases, and in each the part spent in model calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.core.forward_calls import ForwardCall


@dataclass
class Spent:
    """Seconds of wall time in a phase; ``forward`` of them in model calls."""

    wall: float = 0.0
    forward: float = 0.0


class Phases:
    """A stopwatch with named phases. A phase inside another pauses the outer one."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}
        self._meter: list[ForwardCall] = []
        self._stack: list[str] = []
        self._since = 0.0
        self._mark = 0

    def read(self, meter: list[ForwardCall]) -> None:
        """From now on take model calls from ``meter``."""
        self._book()
        self._meter, self._mark = meter, len(meter)

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Inside the block time goes to phase ``name``."""
        self._book()
        self._stack.append(name)
        try:
            yield
        finally:
            self._book()
            self._stack.pop()

    def _book(self) -> None:
        now, calls = time.perf_counter(), len(self._meter)
        if self._stack:
            spent = self.spent.setdefault(self._stack[-1], Spent())
            spent.wall += now - self._since
            spent.forward += sum(call.seconds for call in self._meter[self._mark : calls])
        self._since, self._mark = now, calls
