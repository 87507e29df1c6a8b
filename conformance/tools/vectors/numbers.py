"""Sparse logprobs as tables that the checks can compare.

A golden and a trace each show only their most likely tokens. Of a token that one side does not show
it is known that it is at most as likely as the least likely that this side shows. Where only one
side shows a token, the other gets the value nearest to it that this allows: what must differ
differs, and nothing else. What neither shows is minus infinity on both sides, which is no
difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Shown = Sequence[tuple[int, float | None]]


def row(shown: Shown, vocab: int) -> np.ndarray:
    """Logprobs float32 ``[vocab]``: what is not shown is minus infinity, ``None`` becomes NaN."""
    table = np.full(vocab, -np.inf, np.float32)
    for token, value in shown:
        table[token] = math.nan if value is None else value
    return table


def row_pair(want: Shown, got: Shown, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """One step's logprobs as the golden has them, and as the trace has them.

    Shapes:
        both results float32 ``[vocab]``, as ``row`` gives them but for what one side alone shows.
    """
    theirs, mine = row(want, vocab), row(got, vocab)
    in_theirs, in_mine = np.zeros(vocab, bool), np.zeros(vocab, bool)
    in_theirs[[token for token, _ in want]] = True
    in_mine[[token for token, _ in got]] = True
    least = [_least(theirs), _least(mine)]
    only_theirs, only_mine = in_theirs & ~in_mine, in_mine & ~in_theirs
    pair = theirs.copy(), mine.copy()
    pair[0][only_mine] = np.fmin(mine[only_mine], least[0])
    pair[1][only_theirs] = np.fmin(theirs[only_theirs], least[1])
    return pair


def _least(table: np.ndarray) -> float:
    """The least finite logprob; without any, nothing is known."""
    finite = table[np.isfinite(table)]
    return float(finite.min()) if finite.size else math.inf
