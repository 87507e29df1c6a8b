"""What TurboQuant's codecs are, in numpy: rotation, codebook, packed numbers.

Snapshots in files have no rotation and no codebook in them: both are computed again, of the size
of a head, of bits and of a seed. So they are the same in each process, to the last number drawn.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.plugins.mlx_vlm import compat

turboquant: Any = compat.part("turboquant")

Array = NDArray[Any]

_GRID, _ROUNDS, _EDGE, _STILL = 1 << 15, 100, 1e-6, 1e-6
STEP = 2 / _GRID
"""How far apart the numbers are that levels are means of: one of them may be on either side."""


def signs(dim: int, seed: int) -> Array:
    """The signs of a randomized Hadamard transform, ``[dim]``."""
    return np.random.default_rng(seed + 7919 * dim).choice([-1.0, 1.0], size=dim)


def hadamard(dim: int) -> Array:
    """The transform of so many elements, ``[dim, dim]``; more are cut off, where it is no power."""
    whole = 1 << max(dim - 1, 0).bit_length()
    odd = [[(i & j).bit_count() & 1 for j in range(dim)] for i in range(dim)]
    return (1.0 - 2.0 * np.array(odd)) / math.sqrt(whole)


def rotation(dim: int, seed: int) -> Array:
    """A random rotation, ``[dim, dim]``: of a matrix of normal numbers, with positive diagonal."""
    if dim == 1:
        return np.ones((1, 1))
    drawn = np.random.default_rng(seed + 7919 * dim).standard_normal((dim, dim), dtype=np.float32)
    unitary, upper = np.linalg.qr(drawn)
    return np.asarray(unitary * np.sign(np.diag(upper)))


@functools.lru_cache(maxsize=64)
def codebook(dim: int, bits: int) -> Array:
    """The levels of one coordinate of a random unit vector, ``[2 ** bits]``: Lloyd's algorithm.

    It begins with quantiles; each level becomes the mean of what is nearest to it.
    """
    levels = 1 << bits
    if dim == 1:
        return np.linspace(-1, 1, levels)
    grid = np.linspace(-1 + _EDGE, 1 - _EDGE, _GRID)
    density = (1 - grid**2) ** ((dim - 3) / 2)
    share = np.cumsum(density) / density.sum()
    found = np.interp((np.arange(levels) + 0.5) / levels, share, grid)
    for _ in range(_ROUNDS):
        cell = np.searchsorted((found[:-1] + found[1:]) / 2, grid, side="right")
        weight = np.bincount(cell, density, minlength=levels)
        means = np.bincount(cell, density * grid, minlength=levels) / weight
        still = np.abs(means - found).max() < _STILL
        found = means
        if still:
            break
    return np.asarray(found)


def packed(numbers: Array, bits: int) -> Array:
    """Numbers of so many bits in words of 32, the first in the lowest bits, ``[..., words]``."""
    length = numbers.shape[-1]
    words = -(-length * bits // 32)
    flat = []
    for row in numbers.reshape(math.prod(numbers.shape[:-1]), length).tolist():
        whole = sum(number << (at * bits) for at, number in enumerate(row))
        flat.append([whole >> (32 * word) & 0xFFFFFFFF for word in range(words)])
    return np.array(flat, np.uint32).reshape(*numbers.shape[:-1], words)


@dataclass(frozen=True)
class Codec:
    """Vectors as a length and a level for each coordinate after a rotation.

    Attributes:
        dim: how many elements a vector has.
        bits: of a level.
    """

    dim: int
    bits: int
    seed: int

    @property
    def book(self) -> Array:
        """The library's own codebook, which has a property: a level on the edge is the same."""
        return np.array(turboquant._codebook(self.dim, self.bits)).astype(np.float64)

    @property
    def turned(self) -> Array:
        """The rotation, ``[dim, dim]``; of a power of two elements a Hadamard transform."""
        if self.dim.bit_count() == 1:
            return np.asarray(hadamard(self.dim) * signs(self.dim, self.seed))
        return rotation(self.dim, self.seed)

    def levels(self, vectors: Array) -> Array:
        """Which level each coordinate has; shape as ``vectors``."""
        if self.bits == 0:
            return np.zeros((*vectors.shape[:-1], 0), np.int64)
        book = self.book
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        unit = vectors / np.maximum(lengths, 1e-6)
        edges = (book[:-1] + book[1:]) / 2
        return np.asarray(np.searchsorted(edges, unit @ self.turned.T, side="left"))

    def lengths(self, vectors: Array) -> Array:
        """In half precision."""
        return np.asarray(np.linalg.norm(vectors, axis=-1).astype(np.float16))

    def decoded(self, vectors: Array) -> Array:
        """What vectors are after quantizing and back; shape as ``vectors``."""
        if self.bits == 0:
            return np.zeros(vectors.shape)
        units = self.book[self.levels(vectors)] @ self.turned
        return np.asarray(self.lengths(vectors).astype(np.float64)[..., None] * units)


def parted(vectors: Array, bits: float) -> tuple[Array, Array]:
    """Which elements have fewer bits and which one more: those that are largest on average."""
    size = vectors.shape[-1]
    many = min(max(round((bits - math.floor(bits)) * size), 1), size - 1)
    order = np.argsort(np.abs(vectors).mean((0, 1, 2)))
    return np.sort(order[:-many]), np.sort(order[-many:])


def decoded(vectors: Array, bits: float, seed: int, first: int | None = None) -> Array:
    """What vectors are after quantizing and back, by one codec, or by two of half bits.

    Args:
        first: how many tokens decide which elements have more bits; all by default.
    """
    if float(bits).is_integer():
        return Codec(vectors.shape[-1], int(bits), seed).decoded(vectors)
    found = np.empty(vectors.shape)
    parts = zip(
        parted(vectors[:, :, :first], bits),
        (math.floor(bits), math.ceil(bits)),
        (0, 97),
        strict=True,
    )
    for which, own, more in parts:
        found[..., which] = Codec(len(which), own, seed + more).decoded(vectors[..., which])
    return found
