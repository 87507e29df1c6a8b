"""Messages between an engine and the processes of its group, pickled, on this machine only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.core.phases import ForwardCall
from conformance.core.schedule import Stage
from conformance.core.trace import CachedLayer, Failure


@dataclass(frozen=True)
class Call:
    """A call for a process to make: the name of a method of ``Seat``, and its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """The state of an engine after a call; see the methods of ``Engine``."""

    stages: Mapping[str, Stage] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    cache_bytes: int | None = None
    layers: tuple[CachedLayer, ...] = ()


@dataclass(frozen=True)
class Reply:
    """The reply of one process.

    Attributes:
        value: the return value of the method.
        state: the engine's state after the call.
        forwards: the calls of its part of the model since the previous reply.
        failure: the exception that the method raised, if it did.
        hits: how often each fault or mend took effect in the process since its engine was made.
    """

    value: Any = None
    state: State = State()
    forwards: tuple[ForwardCall, ...] = ()
    failure: Failure | None = None
    hits: tuple[int, ...] = ()
