"""Records every call of a model, by giving the instance its own metered class."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from conformance.core.phases import ForwardCall


def attach_meter(model: Module, *, evaluate: bool = False) -> list[ForwardCall]:
    """A list to which each later call of ``model`` is appended.

    The instance's class is replaced by a subclass of the same name, so ``isinstance``, attribute
    access and everything that a library does with its model are unchanged.

    Args:
        evaluate: compute the output inside the call, so that ``seconds`` includes the whole cost
            and not just building the graph. Only for benchmarks: it changes what overlaps.
    """
    calls: list[ForwardCall] = []
    base = type(model)
    count_reads()

    @functools.wraps(base.__call__)
    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        # Arguments are passed on unchanged: whether a model takes a name is part of the test.
        start = time.perf_counter()
        output = base.__call__(self, *args, **kwargs)
        if evaluate:
            mx.eval(output, [c.state for c in kwargs.get("cache") or () if not c.empty()])
        batch, length = _shape(args, kwargs)
        calls.append(ForwardCall(batch, length, time.perf_counter() - start, len(_READS)))
        _READS.clear()
        return output

    # A library may look up the module of its model's class.
    shown = {"__doc__": base.__doc__, "__module__": base.__module__}
    model.__class__ = type(base.__name__, (base,), {"__call__": __call__, **shown})
    return calls


# One entry for each read by the host since the last model call ended.
_READS: list[None] = []


@functools.cache
def count_reads() -> None:
    """From now on, count each host read of an array's contents; once per process."""
    for name in ("item", "tolist"):
        _count(name, getattr(mx.array, name))


def _count(name: str, right: Callable[[mx.array], Any]) -> None:
    @functools.wraps(right)
    def read(array: mx.array) -> Any:
        _READS.append(None)
        return right(array)

    setattr(mx.array, name, read)


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """``(batch, length)`` of a call, from its first argument or the first with two axes."""
    for value in (*args[:1], *kwargs.values()):
        if isinstance(value, mx.array) and value.ndim >= 2:
            return value.shape[0], value.shape[1]
    return 0, 0
