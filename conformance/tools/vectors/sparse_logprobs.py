"""Sparse logprobs as tables that the checks can compare.

A golden and a trace each list only their most likely tokens. A token that one side does not list is
at most as likely as the least likely one that it lists. If only one side lists a token, the other
gets the nearest value that this bound allows, so that only differences beyond it count. A token
that neither side lists is minus infinity on both, which is no difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Shown = Sequence[tuple[int, float | None]]


def row(shown: Shown, vocab: int) -> np.ndarray:
    """Logprobs float32 ``[vocab]``: minus infinity if not listed; ``None`` becomes NaN."""
    table = np.full(vocab, -np.inf, np.float32)
    for token, value in shown:
        table[token] = math.nan if value is None else value
    return table


def row_pair(want: Shown, got: Shown, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """One step's logprobs in the golden and in the trace.

    Shapes:
        both results float32 ``[vocab]``, like ``row``, except for tokens that only one side lists.
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
    """The least finite logprob; infinity if there is none, since then there is no bound."""
    finite = table[np.isfinite(table)]
    return float(finite.min()) if finite.size else math.inf
