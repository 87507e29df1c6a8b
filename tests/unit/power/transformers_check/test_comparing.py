"""When two implementations agree, and when they don't."""

import numpy as np
import pytest

from conformance.core.numerics import Envelope
from conformance.power.transformers_check import comparing

STEPS, VOCAB = 6, 32


@pytest.fixture
def want():
    return comparing.logprobs(np.random.default_rng(0).normal(size=(STEPS, VOCAB)) * 3)


def flat(level):
    return Envelope(np.full(STEPS, level), np.full(STEPS, level), level)


def test_logprobs_sum_to_one(want):
    assert np.exp(want).sum(axis=-1) == pytest.approx(np.ones(STEPS), abs=1e-5)


@pytest.mark.parametrize(("times", "place"), [(1.0, None), (2.4, None), (2.6, 3), (1000.0, 3)])
def test_a_difference_counts_from_the_limit_on(want, times, place):
    got = want.copy()
    got[3, 5] += times * 1e-3
    found = comparing.read(got, want, flat(1e-3))
    assert found.place == place
    assert found.ratio == pytest.approx(times, rel=0.02)


def test_nan_is_never_agreement(want):
    got = want.copy()
    got[1, 0] = np.nan
    found = comparing.read(got, want, flat(1e-3))
    assert found.place == 1
    assert found.ratio == np.inf


def test_noise_is_what_perturbing_moves(want):
    runs = np.stack([want, want + np.float32(1e-2)])
    found = comparing.noise(runs, want, want, None)
    assert found.full == pytest.approx(np.full(STEPS, 1e-2), rel=0.01)


def test_what_float32_costs_the_other_side_is_noise_too(want):
    exact = want + np.float32(3e-2)
    found = comparing.noise(want[None], want, want, exact)
    assert found.full == pytest.approx(np.full(STEPS, 3e-2), rel=0.01)
    assert comparing.noise(want[None], want, want, None).full.max() < 1e-4


def test_the_noise_of_the_last_places():
    envelope = Envelope(np.arange(6.0), np.arange(6.0) + 1, 0.5)
    assert comparing.last(envelope, 2).top.tolist() == [4.0, 5.0]
    assert comparing.last(envelope, 2).full.tolist() == [5.0, 6.0]
