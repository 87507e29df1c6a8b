"""Smallest signal over largest noise, for each family and dtype."""

import pytest

from conformance.report.separation import separations
from conformance.report.trials import Kill, Outcome, Trial


def trial(fault, *ratios, family="llama", dtype="float32", noise=None, outcome=Outcome.KILLED):
    kills = tuple(Kill("ragged", "drift", ("forced",), ratio) for ratio in ratios)
    about = (fault, "masks", "mlx_lm", family, dtype, 0)
    return Trial(*about, outcome, kills, noise=noise)


def test_it_is_the_smallest_signal_over_the_largest_noise():
    (found,) = separations([trial("A", 900.0, noise=3.0), trial("B", 600.0, 800.0, noise=1.5)])
    assert (found.signal, found.noise, found.value) == (800.0, 3.0, pytest.approx(800 / 3))
    assert found.fault == "B"


def test_noise_within_the_envelope_counts_as_the_envelope():
    (found,) = separations([trial("A", 500.0, noise=0.1)])
    assert (found.noise, found.value) == (1.0, 500.0)


def test_a_fault_that_no_number_detects_has_no_signal():
    assert separations([trial("A", None), trial("B", outcome=Outcome.SURVIVED)]) == ()
    (found,) = separations([trial("A", None), trial("B", 200.0)])
    assert found.fault == "B"


def test_noise_counts_though_its_fault_was_not_killed():
    away = trial("B", noise=2.0, outcome=Outcome.SURVIVED)
    (found,) = separations([trial("A", 500.0), away])
    assert found.value == 250.0


def test_each_family_and_dtype_has_its_own_and_the_closest_comes_first():
    trials = [trial("A", 500.0), trial("A", 50.0, family="gpt2"), trial("A", 6.0, dtype="bfloat16")]
    found = separations(trials)
    assert [(item.family, item.dtype) for item in found] == [
        ("llama", "bfloat16"),
        ("gpt2", "float32"),
        ("llama", "float32"),
    ]
    assert [item.enough for item in found] == [True, False, True]
