"""Sparse logprobs become tables in which only what must differ differs."""

import math

import numpy as np
import pytest

from conformance.tools.vectors.sparse_logprobs import row, row_pair

WANT = [(1, -0.5), (2, -1.5), (3, -2.5)]


def apart(got):
    """Largest difference of the two tables; NaN counts."""
    theirs, mine = row_pair(WANT, got, 6)
    with np.errstate(invalid="ignore"):
        delta = np.abs(mine - theirs)
    return float(np.where(theirs == mine, 0.0, delta).max())


def test_a_row_holds_what_is_shown():
    assert row([(1, -0.5), (3, None)], 4).tolist()[:2] == [-math.inf, -0.5]
    assert math.isnan(row([(3, None)], 4)[3])


def test_equal_numbers_are_equal():
    assert apart(WANT) == 0


def test_fewer_tokens_shown_are_no_difference():
    assert apart(WANT[:1]) == 0


def test_more_tokens_shown_are_no_difference():
    assert apart([*WANT, (4, -3.5), (5, -4.5)]) == 0


@pytest.mark.parametrize("token", [1, 2, 3])
def test_another_number_is_a_difference(token):
    got = [(i, value - 0.25 * (i == token)) for i, value in WANT]
    assert apart(got) == 0.25


def test_a_token_that_should_have_been_shown():
    """It is at most as likely as the least that is shown, and the golden says it is likelier."""
    assert apart([(1, -0.5), (3, -2.5)]) == 1.0


def test_a_token_that_should_not_have_been_shown():
    """The golden does not show it, so it is at most as likely as the golden's least."""
    assert apart([*WANT, (4, -1.0)]) == 1.5


@pytest.mark.parametrize("token", [1, 4])
def test_nan_is_a_difference(token):
    got = [pair for pair in WANT if pair[0] != token]
    assert math.isnan(apart([*got, (token, None)]))


def test_nan_alone_gives_no_bound():
    theirs, mine = row_pair(WANT, [(1, None)], 6)
    assert theirs.tolist() == row(WANT, 6).tolist()
    assert mine[2:].tolist() == theirs[2:].tolist()
