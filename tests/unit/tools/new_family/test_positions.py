"""Sections and factors of rotations, cut to a tiny head."""

from hypothesis import given
from hypothesis import strategies as st

from conformance.tools.new_family.positions import apportion, thinned


@given(st.lists(st.integers(1, 64), min_size=1, max_size=4), st.integers(4, 64))
def test_parts_sum_to_the_total_and_none_vanishes(parts, total):
    small = apportion(parts, total)
    assert sum(small) == total
    assert min(small) >= 1


def test_proportions_are_kept():
    assert apportion([16, 24, 24], 8) == [2, 3, 3]
    assert apportion([24, 20, 20], 16) == [6, 5, 5]


@given(st.lists(st.floats(1, 64), min_size=2, max_size=64), st.integers(2, 16))
def test_factors_keep_their_ends(values, count):
    small = thinned(values, count)
    assert len(small) == min(count, len(values))
    assert (small[0], small[-1]) == (values[0], values[-1])
