"""The reference: a row is the list of its tokens, a batch a list of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.power.caches.tokens import PADDING_ROW, Grid, Token


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
