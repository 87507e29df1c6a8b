"""Outputs of recurrent layers at masked steps, which nobody may look at."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import Injection, exchange_in
from conformance.plugins.mlx_lm.faults.tools import ATTENTION, RECURRENT, mlx_lm_fault


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


def _poisoned(poison: Callable[[mx.array], Any]) -> Injection:
    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        signature = inspect.signature(right)

        def call(*args: Any, **options: Any) -> Any:
            out = right(*args, **options)
            mask = signature.bind(*args, **options).arguments.get("mask")
            if mask is not None and not mask.all().item():
                hits.hit()
                out = mx.where(mask[..., None], out, poison(out))
            return out

        return call

    @contextlib.contextmanager
    def inject(hits: Hits) -> Iterator[None]:
        with exchange_in(_recurrent_layers(), "__call__", spoil)(hits):
            yield

    return inject


def _nan(out: mx.array) -> mx.array:
    return mx.full(out.shape, mx.nan, out.dtype)


def _overflown(out: mx.array) -> mx.array:
    return mx.full(out.shape, mx.inf, out.dtype)


def _other_rows(out: mx.array) -> mx.array:
    return mx.concatenate([out[1:], out[:1]])


FAULTS = tuple(
    mlx_lm_fault(
        name=f"A2.masked-steps-{name}",
        fault_class="padding NaN",
        source="mlx-lm #1072",
        summary=f"Masked steps leave {what} in a recurrent layer's output; attention comes next.",
        needs=(RECURRENT, ATTENTION),
        kills=("ragged", "chunked", "window"),
        where="module:*amba*|module:*Mixer|module:*DeltaNet*|module:*ttention",
        inject=_poisoned(poison),
    )
    for name, what, poison in (("nan", "NaN", _nan), ("inf", "overflown numbers", _overflown))
)

# No defect as long as they are finite: what is masked has weight 0, and no state takes it in.
HARMLESS = _poisoned(_other_rows)
