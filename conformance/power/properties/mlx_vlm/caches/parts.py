"""Helpers of the properties of mlx-vlm's caches: drawn arrays, differences and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.plugins.mlx_vlm import compat

caches: Any = compat.part("models.cache")

FILE = "mlx_vlm/models/cache.py"


def drawn(seed: int, *shape: int) -> np.ndarray:
    """Small integers above 0, ``shape``: exact in float32."""
    return np.random.default_rng(seed).integers(1, 200, shape).astype(np.float32)


def differs(got: Any, wanted: np.ndarray | None, what: str) -> Iterator[str]:
    """The difference of an array from the wanted one, or that it should be missing."""
    if wanted is None or got is None:
        if (wanted is None) != (got is None):
            yield f"{what}: {'there is none' if got is None else 'there is one'}"
        return
    array = np.array(got)
    if array.shape != wanted.shape or array.dtype != wanted.dtype or (array != wanted).any():
        yield f"{what}: {array.shape} {array.dtype}, not {wanted.tolist()}"


def refuses(error: type[Exception], call: Callable[..., object], *args: Any) -> Iterator[str]:
    """The problem that a call is not refused with this error, if so."""
    try:
        got = call(*args)
    except error:
        return
    yield f"{getattr(call, '__name__', call)} of {args} is taken: {got}"


def commits(count: int, total: int) -> Sequence[Any]:
    """Numbers of a block's tokens to keep: equal for all rows, and different for each."""
    alike = [*range(total + 1), *([number] * count for number in (0, total))]
    ragged = [[(row + start) % (total + 1) for row in range(count)] for start in range(total + 1)]
    return [*alike, *ragged, *(mx.array(one) for one in ragged[:2])]


def kept_of(lengths: Any, count: int) -> list[int]:
    """A result of ``commits`` as a number for each row."""
    numbers: Any = lengths.tolist() if isinstance(lengths, mx.array) else lengths
    return [numbers] * count if isinstance(numbers, int) else list(numbers)
