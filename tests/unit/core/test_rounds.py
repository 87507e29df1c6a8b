"""Rounds of drafts: how many tokens each row must get."""

import pytest

from conformance.core.rounds import Given, all_accepted, counted_as_accepted, counted_once

NOBODY = ()


def given(*pairs):
    return [Given(tokens, right) for tokens, right in pairs]


@pytest.mark.parametrize(
    ("going", "ended"),
    [
        (given((4, 3), (1, 0)), NOBODY),
        (given((2, 3), (2, 1)), NOBODY),  # as many as the row with the fewest
        (given((2, 3), (2, 2)), given((2, 3))),  # its limit may have been reached
        (given((2, 3), (2, 2)), given((1, 1))),  # it was removed before its second token
    ],
)
def test_all_right_tokens_are_accepted_or_as_many_as_the_row_with_the_fewest(going, ended):
    assert all_accepted(going, ended).holds


@pytest.mark.parametrize(
    ("going", "ended"),
    [
        (given((1, 3)), NOBODY),
        (given((1, 3), (1, 3)), NOBODY),
        (given((1, 3), (3, 2)), NOBODY),
        (given((2, 0)), NOBODY),
        (given((2, 3), (2, 2)), given((3, 2))),
        (given((1, 3), (1, 2)), given((2, 3))),
    ],
)
def test_other_numbers_do_not_hold_and_name_a_cause(going, ended):
    claim = all_accepted(going, ended)
    assert not claim.holds
    assert claim.said == ", ".join(str(row.tokens) for row in going)
    assert claim.found == ", ".join(str(row.right + 1) for row in going)
    assert claim.cause == "the engine accepts another number of a draft's tokens than were right"


@pytest.mark.parametrize(
    ("said", "holds"), [(1.0, False), (4 / 3, True), (5 / 3, True), (2.0, True), (7 / 3, False)]
)
def test_as_many_accepted_tokens_are_counted_as_rows_got(said, holds):
    # Of the last row, which has ended, one token was accepted, or up to three.
    claim = counted_as_accepted(said, given((4, 3), (1, 0)), given((2, 3)))
    assert claim.holds is holds
    assert claim.found == "1.33333 to 2"


def test_a_row_that_was_removed_before_its_first_token_accepted_none_or_some():
    assert counted_as_accepted(0.5, given((2, 1)), given((0, 2))).holds
    assert not counted_as_accepted(0.0, given((2, 1)), given((0, 2))).holds


@pytest.mark.parametrize(("said", "holds"), [(0, False), (1, True), (2, False), (3, True)])
def test_a_round_counts_once_or_once_for_each_row(said, holds):
    assert counted_once(said, 3).holds is holds
