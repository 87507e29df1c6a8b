"""Formulas of rotary positions: against numbers worked out by hand."""

import numpy as np

from conformance.backend.rotations import LENGTH, Turn, longrope, powers, turned, yarn


def test_plain_frequencies_fall_by_the_base():
    assert np.allclose(powers(4, 100.0), [1.0, 0.1])


def test_a_head_is_turned_by_its_position():
    heads = np.array([1.0, 0.0, 5.0])[None, None, None]
    quarter = Turn(np.array([np.pi / 2]), 2.0)
    assert np.allclose(turned(heads, quarter, np.array([1]), pairs=True), [0.0, 2.0, 5.0])
    assert np.allclose(turned(heads, quarter, np.array([2]), pairs=False), [-2.0, 0.0, 5.0])


def test_neighbours_and_halves_are_other_pairs():
    heads = np.array([1.0, 0.0, 0.0, 0.0])[None, None, None]
    turn = Turn(np.array([np.pi / 2, 0.0]))
    assert np.allclose(turned(heads, turn, np.array([1]), pairs=True), [0, 1, 0, 0])
    assert np.allclose(turned(heads, turn, np.array([1]), pairs=False), [0, 0, 1, 0])


def test_yarn_leaves_fast_pairs_and_slows_the_others():
    found = yarn(8, 1e4, {"factor": 4.0, LENGTH: 4096}, 0)
    assert np.isclose(found.frequencies[0], 1.0)
    assert np.isclose(found.frequencies[-1], powers(8, 1e4)[-1] / 4)
    assert np.isclose(found.scale, 0.1 * np.log(4) + 1)


def test_longrope_has_divisors_by_length():
    config = {"max": 8, LENGTH: 4, "short_factor": [1.0], "long_factor": [2.0]}
    assert np.isclose(longrope(2, 10.0, config, 4).frequencies[0], 1.0)
    assert np.isclose(longrope(2, 10.0, config, 5).frequencies[0], 0.5)
    assert np.isclose(longrope(2, 10.0, config, 5).scale, np.sqrt(1.5))
