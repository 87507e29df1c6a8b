"""The reference: tokens whose keys and values say what they are, and rows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Roundtrip = Any  # an array after a lossy cache has stored it

PADDING_ROW = 239
# bfloat16 holds integers up to 256.
_CODES = 249
_NEAR = 1e-2


class Token(NamedTuple):
    """One column of a row; after a trim, a position is written again with a new stamp."""

    row: int
    position: int
    stamp: int

    @property
    def real(self) -> bool:
        """Whether it is not padding."""
        return self.row != PADDING_ROW

    def __str__(self) -> str:
        name = f"row {self.row}" if self.real else "padding"
        return f"{name}@{self.position}"


Grid = Sequence[Sequence[Token]]


def coded(grid: Grid, *, heads: int, size: int, which: int, scaled: bool = False) -> Array:
    """Vectors of all tokens, ``[row, head, column, size]``: small integers, never a zero.

    Args:
        grid: the tokens of each row; all rows have one length.
        heads: the number of heads; each has its own vectors.
        size: the size of a vector.
        which: 0 for keys, 1 for values and so on; a token has different vectors in each.
        scaled: whether to multiply by powers of two, so that quantized groups differ in scale.
    """
    fields = np.array(grid, dtype=np.int64).reshape(len(grid), 1, -1, 1, 3)
    row, position, stamp = fields[..., 0], fields[..., 1], fields[..., 2]
    head = np.arange(heads).reshape(1, heads, 1, 1)
    place = np.arange(size).reshape(1, 1, 1, size)
    unique = (((row * 256 + position) * 256 + stamp) * 8 + head) * 8 + which
    filled = 1 + (_hashed(unique * 256 + place) % _CODES).astype(np.int64)
    named = np.stack(np.broadcast_arrays(row, position, stamp, head), axis=0)[..., 0]
    for index in range(min(4, size)):
        filled[..., index] = 1 + named[(index + which) % 4] % _CODES
    out = filled.astype(np.float32)
    return out * np.float32(2.0) ** ((row + position + stamp) % 4) if scaled else out


def _hashed(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hashes over all bits: close numbers must not give vectors that a codec can confuse."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed >> np.uint64(33)


class TokenIndex:
    """Finds the token of a vector."""

    def __init__(self, roundtrips: Sequence[Roundtrip] = (), *, near: bool = False) -> None:
        """``near`` takes the closest vector, for codecs whose rounding varies."""
        self._roundtrips = roundtrips
        self._near = near
        self._exact: dict[tuple[int, int, bytes], Token] = {}
        self._vectors: dict[tuple[int, int], tuple[list[Token], list[Array]]] = {}

    def add(self, grid: Grid, vectors: Array, which: int) -> None:
        """Add the vectors of these tokens, in the form that the cache returns."""
        back = self._roundtrips[which](vectors) if self._roundtrips else vectors
        back = np.ascontiguousarray(back, dtype=np.float32)
        for row, tokens in enumerate(grid):
            for head in range(back.shape[1]):
                for column, token in enumerate(tokens):
                    vector = back[row, head, column]
                    if self._near:
                        known, added = self._vectors.setdefault((which, head), ([], []))
                        known.append(token)
                        added.append(vector)
                    else:
                        self._exact[which, head, vector.tobytes()] = token

    def read(self, vectors: Array, which: int) -> list[Token | None]:
        """The token of each column of ``[head, column, size]``; ``None`` unless one matches."""
        per_head = [
            self._read(np.ascontiguousarray(vectors[head]), which, head)
            for head in range(vectors.shape[0])
        ]
        return [
            tokens[0] if len(set(tokens)) == 1 else None for tokens in zip(*per_head, strict=True)
        ]

    def _read(self, columns: Array, which: int, head: int) -> list[Token | None]:
        if not self._near:
            return [self._exact.get((which, head, vector.tobytes())) for vector in columns]
        known, added = self._vectors[which, head]
        table = np.stack(added)
        found: list[Token | None] = []
        for vector in columns:
            apart = np.abs(table - vector).max(axis=1)
            best = int(apart.argmin())
            found.append(known[best] if apart[best] <= _NEAR * np.abs(vector).max() else None)
        return found


@dataclass
class Row:
    """One sequence: all tokens fed to it."""

    uid: int
    tokens: list[Token] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def following(self, count: int, stamp: int) -> list[Token]:
        """The next ``count`` tokens."""
        return [Token(self.uid, len(self) + i, stamp) for i in range(count)]

    def visible(self, position: int, window: int | None) -> list[Token]:
        """The tokens that the query at ``position`` may see, in order."""
        first = 0 if window is None else max(0, position - window + 1)
        return self.tokens[first : position + 1]


@dataclass(frozen=True)
class Feed:
    """Columns fed to all rows at once; ``rows`` are the rows before."""

    rows: Sequence[Row]
    grid: Grid

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.grid[0])

    def after(self) -> list[Row]:
        """The rows with the real tokens appended."""
        return [
            Row(row.uid, row.tokens + [token for token in tokens if token.real])
            for row, tokens in zip(self.rows, self.grid, strict=True)
        ]


def padded(tokens: Sequence[Sequence[Token]], stamp: int, *, left: bool) -> list[list[Token]]:
    """The rows padded to one length."""
    width = max(len(row) for row in tokens)
    out = []
    for row in tokens:
        pads = [Token(PADDING_ROW, i, stamp) for i in range(width - len(row))]
        out.append([*pads, *row] if left else [*row, *pads])
    return out
