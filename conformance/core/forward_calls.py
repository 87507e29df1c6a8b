"""Calls of a model, and the calls that a server's own process recorded."""

from __future__ import annotations

from dataclasses import dataclass


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
