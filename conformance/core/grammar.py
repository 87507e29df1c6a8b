"""A toy grammar: a finite automaton over token ids that forbids half of them in each state.

As with a real grammar, the allowed tokens depend on all tokens produced so far: after one token too
many, too few, or from another row, other tokens are forbidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# Tokens move the state by their id modulo this.
_CLASSES = 16


class Grammar:
    """The state of one row, before its first token.

    Args:
        seed: selects the grammar.
        states: their number; the first is the start.
    """

    def __init__(self, seed: int, states: int) -> None:
        self._seed = seed
        # Permutations: rows in different states stay in different states on equal tokens.
        table = np.random.default_rng(seed).permuted(
            np.tile(np.arange(states), (_CLASSES, 1)), axis=1
        )
        self._next: list[list[int]] = table.tolist()
        self._state = 0
        self._length: int | None = None

    def advance(self, tokens: Sequence[int]) -> None:
        """Move on by the tokens that ``tokens``, the whole row, has gained since the last call.

        At the first call they are the prompt, to which the grammar does not apply.
        """
        if self._length is not None:
            for token in tokens[self._length :]:
                self._state = self._next[token % _CLASSES][self._state]
        self._length = len(tokens)

    def allowed(self, vocab: int) -> npt.NDArray[np.bool_]:
        """Whether each token may come next, ``[vocab]``: half of them may."""
        order = np.random.default_rng((self._seed, self._state)).permutation(vocab)
        return order < (vocab + 1) // 2
