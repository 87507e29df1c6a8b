"""The judgement of sensitivity, on numbers made by hand."""

import math

import numpy as np
import pytest

from conformance.core.sensitivity import (
    Rounding,
    Sensitivity,
    Signal,
    change,
    combine,
    longest_repeat,
)


def measured(*, signals=(1.0,), roundings=(), distinct=8, repeats=1, logit_std=3.0):
    return Sensitivity(
        distinct=distinct,
        repeats=repeats,
        logit_std=logit_std,
        signals=tuple(Signal("slot", f"cache {i}", nats) for i, nats in enumerate(signals)),
        roundings=tuple(Rounding(f"r{i}", nats) for i, nats in enumerate(roundings)),
    )


def test_ratio_is_weakest_signal_over_largest_rounding():
    result = measured(signals=(1.0, 0.02), roundings=(1e-4, 5e-5))
    assert result.weakest.where == "cache 1"
    assert result.ratio == pytest.approx(200)
    assert result.sensitive


def test_noise_has_a_floor():
    assert measured(roundings=(0.0,)).noise == 1e-5
    assert measured(roundings=()).noise == 1e-5


def test_an_entry_without_effect_is_not_sensitive():
    assert not measured(signals=(3.0, 0.0)).sensitive
    assert not measured(signals=()).sensitive


def test_nan_counts_as_zero():
    assert measured(signals=(3.0, math.nan)).ratio == 0.0


@pytest.mark.parametrize("nats", [0.5, math.nan, math.inf])
def test_a_rearrangement_beyond_rounding_is_a_disagreement_not_noise(nats):
    result = measured(roundings=(1e-5, nats))
    assert result.noise == 1e-5
    assert [found.rearrangement for found in result.disagreements] == ["r1"]


def test_score_is_three_only_when_all_is_well():
    assert measured().score == pytest.approx(3.0)
    assert measured(distinct=2).score < 3.0
    assert measured(repeats=12).score < 3.0
    assert measured(logit_std=0.1).score < 3.0
    assert measured(signals=(1e-4,)).score < 3.0


def test_change_looks_at_the_references_top_tokens_only():
    reference = np.log(np.array([[0.7, 0.2, 0.1]]))
    other = reference + np.array([[0.01, -0.02, 5.0]])
    assert change(reference, other, top=2) == pytest.approx(0.02)
    assert change(reference, other, top=3) == pytest.approx(5.0)


def test_change_of_nan_is_nan():
    reference = np.log(np.array([[0.7, 0.3]]))
    assert math.isnan(change(reference, reference * np.nan))


def test_longest_repeat():
    assert longest_repeat(()) == 0
    assert longest_repeat((1, 2, 2, 2, 3)) == 3


def test_combine_keeps_the_worst_of_each():
    both = combine(
        (
            measured(signals=(1.0, 2.0), roundings=(1e-6,), distinct=9),
            measured(signals=(3.0, 0.5), roundings=(2e-6,), distinct=7, repeats=4),
        )
    )
    assert [signal.nats for signal in both.signals] == [1.0, 0.5]
    assert both.roundings[0].nats == 2e-6
    assert (both.distinct, both.repeats) == (7, 4)
