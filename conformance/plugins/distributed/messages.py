"""What goes between an engine and the processes of its group; pickled, on this machine only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.core.forward_calls import ForwardCall
from conformance.core.schedule import Stage
from conformance.core.trace import CachedLayer, Failure


@dataclass(frozen=True)
class Call:
    """What a process is to do: the name of a method of ``Seat``, and its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """What an engine can be asked after each call: see the methods of ``Engine``."""

    stages: Mapping[str, Stage] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    cache_bytes: int | None = None
    layers: tuple[CachedLayer, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What one process answers.

    Attributes:
        value: what its method returned.
        state: of its engine afterwards.
        forwards: the calls of its part of the model since the reply before.
        failure: the exception that the method raised, if it did.
        hits: how often each fault or mend took effect there since its engine was made.
    """

    value: Any = None
    state: State = State()
    forwards: tuple[ForwardCall, ...] = ()
    failure: Failure | None = None
    hits: tuple[int, ...] = ()
