"""Messages between an engine and its processes, pickled, on this machine; the ways to split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open

from conformance.core.origin import Origin
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


TENSOR, PIPELINE = "tensor", "pipeline"


_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


def write(origin: Origin, folder: Path) -> None:
    """Write the family's checkpoint with its index to a folder."""
    origin.write(folder)
    write_index(folder)


def write_index(folder: Path) -> None:
    """Write the index of the checkpoint in the folder."""
    with safe_open(folder / _WEIGHTS, framework="numpy") as file:
        places = dict.fromkeys(file.keys(), _WEIGHTS)
    (folder / _INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")
