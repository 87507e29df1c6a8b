"""What a model is made of, as far as batching cares: its kinds of caches and of positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from conformance.backend.disturb import leaves

_SCALINGS = ("rope_scaling", "rope_parameters")


def cache_kinds(entries: Sequence[Any]) -> tuple[str, ...]:
    """The classes of a model's caches, each once, in the order of its layers."""
    return tuple(dict.fromkeys(type(entry).__name__ for entry in leaves(entries)))


def rope_kind(config: Mapping[str, Any], model: Module, forward: Callable[[], object]) -> str:
    """How positions reach the model: ``M-RoPE``, ``RoPE`` with its scaling, or ``none``.

    Args:
        config: as in the checkpoint.
        forward: a short pass through the model, to see whether it rotates by the fast kernel.
    """
    scalings = list(_scalings(config))
    if any("mrope_section" in scaling for scaling in scalings) or hasattr(model, "_rope_deltas"):
        return "M-RoPE"
    kinds = {scaling.get("rope_type") or scaling.get("type") for scaling in scalings}
    kinds -= {None, "default"}
    if kinds:
        return f"RoPE ({', '.join(sorted(map(str, kinds)))})"
    rotates = any(
        word in type(module).__name__.lower()
        for _, module in model.named_modules()
        for word in ("rope", "rotary")
    )
    return "RoPE" if rotates or _rotates(forward) else "none"


def _scalings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            if key in _SCALINGS:
                yield value
            yield from _scalings(value)


def _rotates(forward: Callable[[], object]) -> bool:
    calls: list[int] = []
    original = mx.fast.rope

    def rope(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return original(*args, **options)

    mx.fast.rope = rope
    try:
        forward()
    finally:
        mx.fast.rope = original
    return bool(calls)
