"""Where the host waits for arrays to be computed, by file and line."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import mlx.core as mx
import numpy as np

# Each of these gives the contents of an array to Python.
_METHODS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__")
_CONVERSIONS = ("array", "asarray")
# Adapters read arrays that they pass on; a fault stands for the library's own code.
_OURS, _FAULTS = "conformance", ".faults."
# Number of arrays remembered as computed; more than a step evaluates.
_REMEMBERED = 256


class _Waits:
    """The places of waits; an array that one wait computed causes no further wait."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self._computed: OrderedDict[int, mx.array] = OrderedDict()

    def wait(self, what: str, arrays: list[mx.array], caller: FrameType) -> None:
        """Note that ``what`` waits for arrays, unless all of them are computed."""
        if not _is_ours(caller) and any(id(array) not in self._computed for array in arrays):
            path = "/".join(Path(caller.f_code.co_filename).parts[-3:])
            self.places.append(f"{path}:{caller.f_lineno} {what.strip('_')}")
        # Kept alive, so that no other array gets the same id.
        self._computed |= {id(array): array for array in arrays}
        while len(self._computed) > _REMEMBERED:
            self._computed.popitem(last=False)


@contextlib.contextmanager
def host_reads() -> Iterator[list[str]]:
    """Inside the block, each wait adds its place to the list: ``mlx_lm/generate.py:812 tolist``.

    Waits are ``mx.eval`` and reads of arrays that no earlier wait has computed. Waits by adapters
    of this project are left out; ``mx.async_eval`` does not wait.
    """
    waits = _Waits()
    with contextlib.ExitStack() as stack:
        for name in _METHODS:
            stack.enter_context(_noted(mx.array, name, waits))
        stack.enter_context(_noted(mx, "eval", waits))
        for name in _CONVERSIONS:
            stack.enter_context(_noted(np, name, waits))
        yield waits.places


@contextlib.contextmanager
def _noted(owner: Any, name: str, waits: _Waits) -> Iterator[None]:
    right: Callable[..., Any] | None = getattr(owner, name, None)
    if right is None:
        yield
        return

    @functools.wraps(right)
    def read(*args: Any, **kwargs: Any) -> Any:
        if arrays := list(_arrays(args)):
            waits.wait(name, arrays, sys._getframe(1))
        return right(*args, **kwargs)

    setattr(owner, name, read)
    try:
        yield
    finally:
        setattr(owner, name, right)


def _is_ours(caller: FrameType) -> bool:
    module = str(caller.f_globals.get("__name__", ""))
    return module.startswith(_OURS) and _FAULTS not in module


def _arrays(value: Any) -> Iterator[mx.array]:
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)
