"""Calls of a model, and the time of a run by named phases with the part spent in such calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass


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


@dataclass(frozen=True)
class ForwardCall:
    """One call of the model: its input was ``[batch, length]`` token ids and took ``seconds``.

    ``reads`` counts the reads from device to host since the previous call ended.
    """

    batch: int
    length: int
    seconds: float = 0.0
    reads: int = 0

    @property
    def positions(self) -> int:
        """Token positions computed, padding included."""
        return self.batch * self.length


@dataclass(frozen=True)
class ServedStep:
    """One step of a server's own generator, as its process recorded it.

    Attributes:
        nbytes: bytes of all arrays before the step.
        left: whether a client had disconnected by then.
    """

    forwards: tuple[ForwardCall, ...]
    nbytes: int
    left: bool = False
