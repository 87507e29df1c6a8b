"""Records each step of a server's model in the server's process, and reads the records here.

A step of a server is one call of its generator's ``next``. Its line is written before any answer
of the step is sent, so that a client that has a token also finds the step that generated it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, before, together, wrap
from conformance.core.forward_calls import ForwardCall, ServedStep

_NAME = "steps.jsonl"


class _Line(msgspec.Struct):
    """A step: bytes of arrays before the step, and ``(batch, length)`` of each model call."""

    nbytes: int
    calls: list[tuple[int, int]]


def of_mlx_lm(hits: Hits) -> Patch:
    """The patch that records steps in the process of mlx-lm's server."""
    return _noted("mlx_lm.generate", hits)


def of_mlx_vlm(hits: Hits) -> Patch:
    """The patch that records steps in the process of mlx-vlm's server."""
    return _noted("mlx_vlm.generate.ar", hits)


def _noted(module: str, hits: Hits) -> Patch:
    """Write the steps of the module's generator to a file next to the hits' file."""
    import mlx.core as mx  # noqa: PLC0415 - only in a server's process

    from conformance.backend.metering import attach_meter  # noqa: PLC0415

    generator = importlib.import_module(module).BatchGenerator
    place: Path = hits.file  # type: ignore[attr-defined]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    file = os.open(place.with_name(_NAME), flags, 0o600)
    first = os.environ.get("MLX_RANK", "0") == "0"  # all processes of a group compute the same
    metered: dict[int, list[ForwardCall]] = {}

    def meter(_: Any, model: Any, *__: Any, **___: Any) -> None:
        if id(model) not in metered:
            metered[id(model)] = attach_meter(model)

    def step(right: Right, *args: Any, **options: Any) -> Any:
        nbytes = int(mx.get_active_memory())
        try:
            return right(*args, **options)
        finally:
            calls = [(call.batch, call.length) for found in metered.values() for call in found]
            for found in metered.values():
                found.clear()
            if calls and first:
                os.write(file, msgspec.json.encode(_Line(nbytes, calls)) + b"\n")

    return together(before(generator, "__init__", meter), wrap(generator, "next", step))


class Steps:
    """The recorded steps of a server, from now on.

    Args:
        folder: the server's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _NAME
        self._at = self._file.stat().st_size if self._file.exists() else 0

    def new(self, *, left: bool = False) -> Sequence[ServedStep]:
        """The steps since the previous call; ``left``: whether a client had left before them."""
        if not self._file.exists():
            return ()
        with self._file.open("rb") as file:
            file.seek(self._at)
            *lines, _ = file.read().split(b"\n")
        self._at += sum(len(line) + 1 for line in lines)
        found = (msgspec.json.decode(line, type=_Line) for line in lines)
        return [
            ServedStep(tuple(ForwardCall(*call) for call in line.calls), line.nbytes, left=left)
            for line in found
        ]
