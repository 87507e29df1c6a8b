"""A grammar hangs on every token that came out, and on nothing of the prompt."""

import numpy as np
import pytest

from conformance.core.grammar import Grammar

VOCAB = 64


def after(prompt, output, seed=1):
    """What is allowed once ``output`` came out, token by token."""
    grammar = Grammar(seed, 11)
    for count in range(len(output) + 1):
        grammar.advance([*prompt, *output[:count]])
    return grammar.allowed(VOCAB)


OUTPUT = (3, 20, 41, 5, 60, 11)


def test_half_of_the_tokens_are_forbidden():
    assert after((), OUTPUT).sum() == VOCAB / 2
    assert Grammar(1, 11).allowed(3).sum() == 2


def test_the_prompt_is_no_part_of_it():
    assert np.array_equal(after((), OUTPUT), after((9, 9, 9), OUTPUT))


@pytest.mark.parametrize("seed", range(4))
def test_other_tokens_are_other_states(seed):
    """One more, one less, one other, in another order: a grammar that slept over it shows."""
    wrongs = (OUTPUT[1:], (*OUTPUT, 2), (*OUTPUT[:-1], 12), (OUTPUT[1], OUTPUT[0], *OUTPUT[2:]), ())
    right = after((), OUTPUT, seed)
    differ = [not np.array_equal(after((), wrong, seed), right) for wrong in wrongs]
    assert sum(differ) >= 4


def test_tokens_may_come_several_at_once():
    grammar = Grammar(1, 11)
    grammar.advance([7])
    grammar.advance([7, *OUTPUT])
    assert np.array_equal(grammar.allowed(VOCAB), after((7,), OUTPUT))


def too_many(seed):
    """What is allowed after a token, two that were taken back, and another one."""
    grammar = Grammar(seed, 11)
    for tokens in ([7], [7, 3, 20, 41], [7, 3], [7, 3, 5]):
        grammar.advance(tokens)
    return grammar.allowed(VOCAB)


def test_tokens_that_were_taken_back_are_not_forgotten():
    differ = [not np.array_equal(too_many(seed), after((7,), (3, 5), seed)) for seed in range(20)]
    assert sum(differ) >= 16


def test_other_seeds_are_other_grammars():
    assert not np.array_equal(after((), OUTPUT, 1), after((), OUTPUT, 2))
