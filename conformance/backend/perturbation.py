"""Monte Carlo arithmetic: each layer's output is changed by about one unit in the last place.

Source: D. S. Parker, "Monte Carlo Arithmetic" (UCLA CSD-970002, 1997); here per layer output
instead of per operation, which covers reordered sums, near-ties and routing flips alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding


def perturbed(model: Module, *, ulps: float, seed: int) -> AbstractContextManager[None]:
    """Inside the block, embeddings' and layers' outputs are multiplied by ``1 + ulps * eps * u``.

    u is uniform in (-1, 1), drawn separately for each element and call; eps is that of the output's
    dtype.
    """
    return _perturbed(_layers(model), ulps, seed)


def perturbed_outside(
    model: Module, part: Module, *, ulps: float, seed: int
) -> AbstractContextManager[None]:
    """Like ``perturbed``, for every module of a model outside the given part.

    The encoders of images and sound have no common name for their layers.
    """
    inside = {id(module) for module in part.modules()}
    return _perturbed([m for m in model.modules() if id(m) not in inside], ulps, seed)


@contextlib.contextmanager
def _perturbed(modules: Iterable[Module], ulps: float, seed: int) -> Iterator[None]:
    """Classes are swapped on the instances, not in a list that holds them.

    Some models call their layers through another list than ``model.layers``.
    """
    noise = _noise(ulps, seed)
    swapped: list[tuple[Module, type]] = []
    try:
        for module in modules:
            base = type(module)
            swapped.append((module, base))
            module.__class__ = _noisy_class(base, noise)
        yield
    finally:
        for module, base in swapped:
            module.__class__ = base


def _layers(model: Module) -> list[Module]:
    found: dict[int, Module] = {}
    for layer in model.layers:
        if isinstance(layer, Module):
            found[id(layer)] = layer
    for _, module in model.named_modules():
        if isinstance(module, Embedding):
            found[id(module)] = module
    return list(found.values())


def _noise(ulps: float, seed: int) -> Callable[[mx.array], mx.array]:
    key = mx.random.key(seed)
    count = 0

    def move(x: mx.array) -> mx.array:
        nonlocal count
        count += 1
        if not mx.issubdtype(x.dtype, mx.floating):
            return x
        scale = ulps * mx.finfo(x.dtype).eps
        u = mx.random.uniform(-1, 1, x.shape, key=mx.random.split(key, count + 1)[count])
        return (x.astype(mx.float32) * (1 + scale * u)).astype(x.dtype)

    return move


def _noisy_class(base: type, move: Callable[[mx.array], mx.array]) -> type:
    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        output = base.__call__(self, *args, **kwargs)
        if isinstance(output, mx.array):
            return move(output)
        if isinstance(output, tuple):
            return tuple(move(x) if isinstance(x, mx.array) else x for x in output)
        return output

    return type(base.__name__, (base,), {"__call__": __call__})
