"""Hypothesis decides, and makes what it decided simpler."""

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.tools.explore.hypothesis_choices import Drawn


def least(holds):
    """What is drawn in the simplest example that ``holds``."""
    seen = []

    @settings(database=None, derandomize=True, verbosity=hypothesis.Verbosity.quiet)
    @given(st.data())
    def attempt(data):
        choices = Drawn(data)
        drawn = choices.integer(2, 9), choices.flag(), choices.pick("abc")
        if holds(*drawn):
            seen.append(drawn)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        attempt()
    return seen[-1]


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        (lambda *_: True, (2, False, "a")),
        (lambda number, *_: number > 4, (5, False, "a")),
        (lambda _, flag, letter: flag and letter != "a", (2, True, "b")),
    ],
)
def test_the_first_outcome_is_the_simplest(holds, expected):
    assert least(holds) == expected
