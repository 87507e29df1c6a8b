"""The properties of a model that matter for batching: its caches, states and positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.convolution import Conv1d

from conformance.backend.cache_entries import leaves

_SCALINGS = ("rope_scaling", "rope_parameters")


def cache_kinds(entries: Sequence[Any]) -> tuple[str, ...]:
    """The classes of a model's caches, each once, in the order of its layers; lists first."""
    return tuple(dict.fromkeys(_kinds(entries)))


def _kinds(entries: Sequence[Any]) -> Iterator[str]:
    for entry in entries:
        if entry is not None:
            yield type(entry).__name__
            yield from _kinds(getattr(entry, "caches", ()))


def state_kinds(
    entries: Sequence[Any], model: Module, forward: Callable[[], object]
) -> tuple[str, ...]:
    """The states of layers without keys: ``convolution``, ``recurrence``, or both.

    The last inputs of a convolution are not a recurrence: later tokens do not change them.

    Args:
        entries: the caches that ``forward`` fills.
        forward: a short pass through the model.
    """
    held = [entry for entry in leaves(entries) if isinstance(getattr(entry, "cache", None), list)]
    if not held:
        return ()
    forward()
    tails = {m.weight.shape[1] - 1 for _, m in model.named_modules() if isinstance(m, Conv1d)}
    arrays = [array for entry in held for array in entry.cache if array is not None]
    found = {_is_tail(array, tails) for array in arrays}
    names = {True: "convolution", False: "recurrence"}
    return tuple(names[kind] for kind in sorted(found, reverse=True))


def _is_tail(state: mx.array, lengths: set[int]) -> bool:
    """Whether a state ``[1, steps, channels]`` is as long as the past inputs of a convolution."""
    return state.ndim == 3 and state.shape[1] in lengths


def rope_kind(config: Mapping[str, Any], model: Module, forward: Callable[[], object]) -> str:
    """How positions reach the model: ``M-RoPE``, ``RoPE`` with its scaling, or ``none``.

    Args:
        config: the config in the checkpoint.
        forward: a short pass through the model, which shows whether it calls the fast kernel.
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
