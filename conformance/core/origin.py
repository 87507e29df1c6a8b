"""Where a model is from, for engines that load it in their own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.core.engine_options import EngineOptions
from conformance.core.family import Family
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Request


@dataclass(frozen=True)
class Origin:
    """A family's model in one dtype with weights of one seed.

    ``model`` is the model that the library loaded; ``write`` writes its checkpoint to a folder,
    like ``Library.write``. ``other`` gives the family's model with weights of another seed, and
    single streams of requests to it; ``alone`` gives those of this model, and ``logprobs`` theirs,
    float32 ``[tokens, vocab]``. ``meter`` is the list to which an engine appends the model calls of
    its own processes.
    """

    model: Any
    family: Family
    dtype: str
    seed: int
    write: Callable[[Path], object]
    other: Callable[[int], Other] | None = None
    meter: list[ForwardCall] = field(default_factory=list)
    alone: Callable[[Request, EngineOptions], tuple[int, ...]] | None = None
    logprobs: Callable[[Request, EngineOptions], Any] | None = None


@dataclass(frozen=True)
class Other:
    """Another model: ``write`` as in ``Origin``; ``alone`` gives a request's single stream."""

    write: Callable[[Path], object]
    alone: Callable[[Request, EngineOptions], tuple[int, ...]]
