"""What recurrent layers give at masked steps, which nobody may look at."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import ATTENTION_MODULE, RECURRENT_MODULE
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap_each
from conformance.power.faults.mlx_lm.tools import ATTENTION, RECURRENT, mlx_lm_fault

_fault = partial(
    mlx_lm_fault,
    fault_class="padding NaN",
    source="mlx-lm #1072",
    needs=(RECURRENT, ATTENTION),
    kills=("ragged", "chunked", "window"),
    where=f"{RECURRENT_MODULE}|{ATTENTION_MODULE}",
)


def _recurrent_layers() -> list[type]:
    """Of all models that are loaded: each class whose call moves a recurrent cache on."""
    found = {
        kind
        for name, module in list(sys.modules.items())
        if name.startswith("mlx_lm.models.")
        for kind in vars(module).values()
        if isinstance(kind, type) and inspect.isfunction(call := vars(kind).get("__call__"))
        if {"mask", "cache"} <= set(call.__code__.co_varnames)
        if "advance" in call.__code__.co_names
    }
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def _masked_steps(change: Callable[[mx.array], mx.array], hits: Hits) -> Patch:
    """Where a step is masked, a recurrent layer gives ``change(output)``."""

    def call(right: Right, *args: Any, **options: Any) -> Any:
        out = right(*args, **options)
        mask = inspect.signature(right).bind(*args, **options).arguments.get("mask")
        if mask is not None and not mask.all().item():
            hits.hit()
            out = mx.where(mask[..., None], out, change(out))
        return out

    return wrap_each(_recurrent_layers(), "__call__", call)


@_fault("A2.masked-steps-nan")
def masked_steps_nan(hits: Hits) -> Patch:
    """Masked steps leave NaN in a recurrent layer's output; attention comes next."""
    return _masked_steps(lambda out: mx.full(out.shape, mx.nan, out.dtype), hits)


@_fault("A2.masked-steps-inf")
def masked_steps_inf(hits: Hits) -> Patch:
    """Masked steps leave overflown numbers in a recurrent layer's output; attention comes next."""
    return _masked_steps(lambda out: mx.full(out.shape, mx.inf, out.dtype), hits)


def harmless(hits: Hits) -> Patch:
    """Masked steps get other rows' output, which is no defect as long as that is finite.

    What is masked has weight 0, and no state takes it in.
    """
    return _masked_steps(lambda out: mx.concatenate([out[1:], out[:1]]), hits)
