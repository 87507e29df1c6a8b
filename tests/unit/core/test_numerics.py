"""When a difference is rounding: the arithmetic, on numbers that are made up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conformance.core import numerics
from conformance.core.numerics import (
    ENOUGH,
    ENOUGH_OF_FEW,
    FACTOR,
    HOPELESS,
    WIDE_FACTOR,
    Envelope,
)

INF = np.inf
finite = st.floats(-30, 0, width=32)
tables = hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(2, 30)), elements=finite)


def table(*rows):
    return np.array(rows, np.float32)


def everything(want):
    return np.broadcast_to(np.arange(want.shape[1]), want.shape)


@pytest.mark.parametrize(
    ("got", "want", "difference"),
    [
        (-1.0, -1.5, 0.5),
        (-INF, -INF, 0.0),
        (-INF, -1.0, INF),
        (-1.0, -INF, INF),
        (np.nan, -1.0, INF),
        (-1.0, np.nan, INF),
        (np.nan, np.nan, INF),
        (INF, INF, 0.0),
        (INF, -INF, INF),
    ],
)
def test_differences_of_numbers_that_are_none(got, want, difference):
    near, full = numerics.differences(table([got]), table([want]), np.array([[0]]))
    assert near.tolist() == full.tolist() == [difference]


def test_differences_are_over_the_likely_tokens_and_over_all():
    want = table([-0.1, -3.0, -9.0], [-2.0, -0.2, -4.0])
    got = want + table([0.25, 0.0, 1.0], [0.0, 0.0, -0.5])
    near, full = numerics.differences(got, want, np.array([[0], [1]]))
    assert near.tolist() == [0.25, 0.0]
    assert full.tolist() == [1.0, 0.5]


@given(tables)
def test_nothing_differs_from_itself(rows):
    near, full = numerics.differences(rows, rows, everything(rows))
    assert not near.any()
    assert not full.any()


@given(tables, st.integers(1, 40))
def test_differences_over_fewer_tokens_are_no_larger_and_do_not_care_for_the_side(rows, count):
    other = rows[:, ::-1].copy()
    top = numerics.top_tokens(rows, count)
    near, full = numerics.differences(other, rows, top)
    back = numerics.differences(rows, other, top)
    assert (near <= full).all()
    assert np.array_equal(near, back[0])
    assert np.array_equal(full, back[1])


def test_margins_are_top_one_minus_top_two():
    assert numerics.margins(table([-3.0, -0.5, -2.0], [-1.0, -7.0, -1.0])).tolist() == [1.5, 0.0]


@given(tables)
def test_margins_are_those_of_a_full_sort(rows):
    ranked = np.sort(rows, axis=-1)
    assert np.array_equal(numerics.margins(rows), ranked[:, -1] - ranked[:, -2])


@given(tables, st.integers(1, 40))
def test_top_tokens_are_the_largest(rows, count):
    top = numerics.top_tokens(rows, count)
    kept = min(count, rows.shape[1])
    assert top.shape == (len(rows), kept)
    found = np.sort(np.take_along_axis(rows, top, axis=-1), axis=-1)
    assert np.array_equal(found, np.sort(rows, axis=-1)[:, -kept:])


def test_the_floor_is_two_units_in_the_last_place_of_the_scale():
    assert numerics.floor("float32", table([-8.0] * 10)) == 2 * 2.0**-23 * 8
    assert numerics.floor("bfloat16", table([-8.0] * 10)) == 2 * 2.0**-7 * 8
    assert numerics.floor("float16", table([-0.25] * 10)) == 2 * 2.0**-10


def test_the_floor_does_not_look_at_masked_tokens_or_outliers():
    rows = table([-4.0] * 95 + [-INF] * 4 + [-1e9])
    assert numerics.floor("float32", rows) == 2 * 2.0**-23 * 4
    assert numerics.floor("float32", table([-INF, -INF])) == 2 * 2.0**-23


def test_the_envelope_is_the_largest_move_of_any_run_and_never_below_the_floor():
    base = table([-0.1, -3.0, -5.0], [-0.2, -2.0, -4.0])
    runs = np.stack([base, base, base])
    runs[0, 0, 1] += 0.5
    runs[1, 0, 1] -= 0.75
    found = numerics.envelope_of(runs, base, floor=0.01)
    assert found.full.tolist() == pytest.approx([0.75, 0.01])
    assert found.top.tolist() == pytest.approx([0.75, 0.01])
    assert found.floor == 0.01
    assert found.measured


def test_unlikely_tokens_count_in_the_full_envelope_only():
    base = -np.arange(1.0, 41.0, dtype=np.float32)[None]
    runs = base[None].copy()
    runs[0, 0, 39] += 2.0
    found = numerics.envelope_of(runs, base, floor=1e-6)
    assert found.full[0] == 2.0
    assert found.top[0] == pytest.approx(1e-6)


def judge(*ratios, noise=0.01):
    """The deviation of a run whose differences are these multiples of the noise."""
    want = np.tile(table([-1.0, -2.0, -4.0]), (len(ratios), 1))
    got = want.astype(np.float64)
    got[:, 1] += np.array(ratios) * noise
    return numerics.deviation(got, want, numerics.flat_envelope(len(ratios), noise))


def test_the_worst_step_and_the_first_bad_one_are_distinguished():
    found = judge(1.0, 6.0, 50.0, 5.0)
    assert (found.first_bad_step, found.worst_step) == (1, 2)
    assert found.ratio.tolist() == pytest.approx([1.0, 6.0, 50.0, 5.0])
    assert found.difference.tolist() == pytest.approx([0.01, 0.06, 0.5, 0.05])


def test_likely_tokens_have_a_noise_of_their_own():
    want = -np.arange(1.0, 41.0, dtype=np.float32)[None]
    envelope = Envelope(np.array([0.01]), np.array([1.0]), 0.01)
    got = want.copy()
    got[0, 39] += 2.0  # the last of 40 tokens moves by twice the noise of all
    assert numerics.deviation(got, want, envelope).within_noise
    got = want.copy()
    got[0, 0] += 0.05  # the first by five times the noise of the likely ones
    assert not numerics.deviation(got, want, envelope).within_noise


def test_an_envelope_may_have_more_steps_than_the_run():
    want = table([-1.0, -2.0])
    assert numerics.deviation(want, want, numerics.flat_envelope(5, 0.1)).within_noise


@given(tables, st.floats(1e-6, 1.0))
def test_a_run_within_its_own_envelope_is_never_wrong(rows, floor):
    """A benign run that was itself one of the perturbed ones has a ratio of at most one."""
    moved = rows + np.float32(0.1) * np.sin(np.arange(rows.size, dtype=np.float32)).reshape(
        rows.shape
    )
    envelope = numerics.envelope_of(moved[None], rows, floor=floor)
    found = numerics.deviation(moved, rows, envelope)
    assert found.ratio.max() <= 1.0
    assert found.within_noise


def test_a_masked_token_in_one_perturbed_run_is_no_infinite_noise():
    base = np.array([[0.0, -1.0, -2.0]], np.float32)
    runs = np.stack([base + 0.01, np.array([[0.0, -1.0, -np.inf]], np.float32)])
    found = numerics.envelope_of(runs, base, floor=1e-6)
    assert np.isfinite(found.full).all()
    assert found.full[0] == pytest.approx(0.01, rel=1e-3)


def test_a_ratio_that_is_no_number_counts_as_infinite():
    noise = numerics.Envelope(np.full(1, np.inf), np.full(1, np.inf), 1e-6)
    got, want = np.array([[np.nan, 0.0]]), np.array([[0.0, 0.0]])
    assert numerics.deviation(got, want, noise).first_bad_step == 0


# ------------------------------------------------------- noise that is made up: what it excuses

EXACT = 2.0**-10  # a noise by which powers of two can be multiplied without rounding
LEVELS = st.lists(st.sampled_from([2.0**n for n in range(-12, -2)]), min_size=1, max_size=8)


def envelope(*levels, measured=True, few=False):
    level = np.array(levels, np.float64)
    return Envelope(level, level, float(level.min()), measured, few)


def moved(*nats):
    """The logprobs of a run, one token of three moved at each step, and the oracle's."""
    want = np.tile(np.array([-1.0, -2.0, -4.0]), (len(nats), 1))
    got = want.copy()
    got[:, 1] += nats
    return got, want


@pytest.mark.parametrize(
    ("times", "within"),
    [(0.0, True), (1.0, True), (FACTOR, True), (FACTOR * (1 + 2.0**-20), False), (np.nan, False)],
)
def test_one_step_below_at_and_above_the_limit(times, within):
    found = numerics.deviation(*moved(0.0, times * EXACT, 0.0), envelope(*[EXACT] * 3))
    assert found.within_noise is within
    assert found.first_bad_step == (None if within else 1)


@pytest.mark.parametrize(
    ("steps", "wide", "within"),
    [(2, 2, True), (3, 2, True), (3, 3, False), (6, 3, False), (7, 3, True), (7, 4, False)],
)
def test_the_share_of_steps_outside_below_at_and_above_the_limit(steps, wide, within):
    at, above = WIDE_FACTOR, WIDE_FACTOR * (1 + 2.0**-20)
    noise = envelope(*[EXACT] * steps)
    nats = [above * EXACT] * wide + [0.0] * (steps - wide)
    assert numerics.deviation(*moved(*nats), noise).within_noise is within
    assert numerics.deviation(*moved(*[at * EXACT] * steps), noise).within_noise


def test_nan_in_a_perturbed_run_widens_nothing():
    _, base = moved(0.0, 0.0)
    runs = np.stack([base, base + 0.25])
    runs[0, 0] = np.nan
    assert numerics.envelope_of(runs, base, floor=EXACT).full.tolist() == [0.25, 0.25]


@given(LEVELS, st.integers(0, 7), st.sampled_from([0.5, 1.0, 2.0, 8.0]))
def test_a_ratio_is_the_difference_over_the_noise_of_its_own_step(levels, step, times):
    step %= len(levels)
    nats = [0.0] * len(levels)
    nats[step] = times * levels[step]
    found = numerics.deviation(*moved(*nats), envelope(*levels))
    assert found.worst_step == step
    assert found.ratio[step] == times


class Measured:
    """Noises of one step that are handed out one after the other, wider and wider."""

    def __init__(self, *levels, few=0):
        self.levels = levels
        self.few = few  # so many of the first levels are of few runs
        self.calls = []

    def settle(self, nats, floor=EXACT):
        got, want = moved(nats)
        makers = [lambda level=level: self.give(level) for level in self.levels]
        flat = numerics.flat_envelope(1, floor)
        return numerics.settle(lambda n: numerics.deviation(got, want, n), flat, makers)

    def give(self, level):
        self.calls.append(level)
        return envelope(level, few=len(self.calls) <= self.few)


NEAR, OVER, HUGE = 0.99 * FACTOR, 1.01 * FACTOR, 2 * HOPELESS
BETWEEN = (ENOUGH_OF_FEW + ENOUGH) / 2


@pytest.mark.parametrize(
    ("levels", "few", "times", "within", "calls"),
    [
        ((8, 16), 0, ENOUGH, True, 0),  # the floor is enough for what is well within it
        # Else the worst figure of right engines would be one over a floor, just below the limit.
        ((2, 16), 0, NEAR, True, 1),
        ((1, 3), 0, NEAR, True, 2),
        # Many runs that show no more leave the verdict.
        ((1, 1), 0, NEAR, True, 2),
        ((1, 1), 0, OVER, False, 2),
        ((4, 8), 1, 4, True, 1),  # what lies within few runs needs no more
        # With few, a tighter limit: what lies between it and the usual one needs the usual runs.
        ((4, 8), 1, 4 * BETWEEN, True, 2),
        ((4, 8), 0, 4 * BETWEEN, True, 1),
        # A ratio above one is of the usual noise: few runs never judge a defect.
        ((1, 2), 1, 1.01 * ENOUGH, True, 2),
        ((1, HOPELESS), 1, HUGE, True, 2),
        ((1, 1024), 0, HUGE, False, 1),  # a defect is measured once and no more
        ((HOPELESS,), 0, HUGE, True, 1),  # far beyond the floor, and still noise
        ((1024, 10240), 0, np.nan, False, 0),
    ],
)
def test_noise_is_measured_as_far_as_the_difference_needs_it(levels, few, times, within, calls):
    noise = Measured(*(level * EXACT for level in levels), few=few)
    found, used = noise.settle(times * EXACT)
    assert found.within_noise is within
    assert noise.calls == [level * EXACT for level in levels[:calls]]
    assert used.measured is bool(calls)
    if calls:
        assert used.usual is (calls > few)
        assert found.ratio[0] == pytest.approx(times / levels[calls - 1])


def test_two_noises_show_what_either_shows():
    both = envelope(3.0, 1.0, 9.0, few=True).wider_by(envelope(2.0, 4.0))
    assert both.top.tolist() == both.full.tolist() == [3.0, 4.0]
    assert both.usual


def test_the_typical_noise_is_the_median_of_the_row_with_the_least_and_of_few_runs():
    one = Envelope(np.float32([1e-5, 9e-5, 2e-5]), np.float32([2e-5, 3e-5, 3e-5]), 1e-6)
    other = Envelope(np.float32([3e-5]), np.float32([1e-5]), 2e-6)
    found = numerics.typical_envelope(4, [one, other])
    assert found.top.tolist() == [np.float32(2e-5)] * 4
    assert found.full.tolist() == [np.float32(1e-5)] * 4
    assert (found.floor, found.few, found.usual) == (2e-6, True, False)


def test_a_row_is_not_judged_by_the_noise_of_rows_whose_experts_flip():
    flips = Envelope(np.float32([1e-5, 2.0, 2.0]), np.float32([1e-5, 2.0, 2.0]), 1e-6)
    quiet = Envelope(np.float32([1e-5]), np.float32([1e-5]), 1e-6)
    assert numerics.typical_envelope(1, []) is None
    assert numerics.typical_envelope(1, [flips]) is None
    assert numerics.typical_envelope(1, [flips, quiet]).full.tolist() == [np.float32(1e-5)]
