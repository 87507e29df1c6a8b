"""A grammar in small: a finite automaton over token ids that forbids half of them in each state.

What it allows next hangs on all tokens that came out before, as with a real grammar: one token too
many, too few, or of another row, and other tokens are forbidden from there on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# Tokens move the state by their id modulo this.
_CLASSES = 16


class Grammar:
    """One row's state; it has seen nothing yet.

    Args:
        seed: other seeds are other grammars.
        states: how many there are; the first is the start.
    """

    def __init__(self, seed: int, states: int) -> None:
        self._seed = seed
        # Permutations: two rows in other states never meet again while they say the same.
        table = np.random.default_rng(seed).permuted(
            np.tile(np.arange(states), (_CLASSES, 1)), axis=1
        )
        self._next: list[list[int]] = table.tolist()
        self._state = 0
        self._length: int | None = None

    def advance(self, tokens: Sequence[int]) -> None:
        """Move on by what ``tokens``, the whole row, has more than at the last call.

        At the first call they are the prompt, which is no part of what the grammar speaks of.
        """
        if self._length is not None:
            for token in tokens[self._length :]:
                self._state = self._next[token % _CLASSES][self._state]
        self._length = len(tokens)

    def allowed(self, vocab: int) -> npt.NDArray[np.bool_]:
        """Whether each token may come next, ``[vocab]``: half of them may."""
        order = np.random.default_rng((self._seed, self._state)).permutation(vocab)
        return order < (vocab + 1) // 2
