"""Records every call of a model, by giving the instance a metered class of its own."""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from conformance.trace import ForwardCall


def attach_meter(model: Module, *, evaluate: bool = False) -> list[ForwardCall]:
    """A list to which each later call of ``model`` is appended.

    The instance's class is replaced by a subclass of the same name, so ``isinstance``, attribute
    access and everything that a library does with its model stay as they were.

    Args:
        evaluate: compute the output inside the call, so that ``seconds`` holds the whole cost and
            not just the making of the graph. Only benchmarks want it: it changes what overlaps.
    """
    calls: list[ForwardCall] = []
    base = type(model)

    def __call__(self: Module, inputs: mx.array, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        start = time.perf_counter()
        output = base.__call__(self, inputs, *args, **kwargs)
        if evaluate:
            mx.eval(output, [c.state for c in kwargs.get("cache") or () if not c.empty()])
        batch, length = inputs.shape[0], inputs.shape[1]
        calls.append(ForwardCall(batch, length, time.perf_counter() - start))
        return output

    # A library may ask what module its model is from.
    told = {"__doc__": base.__doc__, "__module__": base.__module__}
    model.__class__ = type(base.__name__, (base,), {"__call__": __call__, **told})
    return calls
