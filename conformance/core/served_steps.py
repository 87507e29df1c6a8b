"""What a server's own process noted of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a trace holds these steps
    from conformance.core.trace import ForwardCall


@dataclass(frozen=True)
class ServedStep:
    """One step of a server's own generator, as its process noted it.

    Attributes:
        nbytes: of all arrays before it.
        left: whether a client had left by then.
    """

    forwards: tuple[ForwardCall, ...]
    nbytes: int
    left: bool = False
