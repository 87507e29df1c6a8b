"""Names and places in old releases that have changed since."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from conformance.core.errors import Unsupported


def state_machines(stops: Sequence[tuple[tuple[int, ...], ...]]) -> dict[str, Any]:
    """Stop sequences of each request as the argument of ``insert`` up to 0.31.3."""
    # `mlx_lm.generate` as an attribute is the function of that name.
    machine = importlib.import_module("mlx_lm.generate").SequenceStateMachine
    ends = [{"normal": [(list(s), None) for s in stop]} if stop else {} for stop in stops]
    return {"state_machines": [machine(end, initial="normal") for end in ends]}


def prompt_cache_class() -> Any:
    """The class that keeps sequences for the server; up to 0.31.1 it is the server's own.

    Raises:
        Unsupported: before 0.29 the server keeps no sequences.
    """
    made = getattr(importlib.import_module("mlx_lm.server"), "LRUPromptCache", None)
    if made is None:
        raise Unsupported("this mlx-lm's server does not support keeping prompts' caches")
    return made
