"""TurboQuant in numpy: levels, packed numbers, what is left of a vector."""

import numpy as np
import pytest

from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import (
    Codec,
    codebook,
    packed,
)


def test_levels_of_one_bit_are_the_means_of_both_halves():
    # Of a coordinate of a random direction in three dimensions, which is anywhere alike.
    assert codebook(3, 1).tolist() == pytest.approx([-0.5, 0.5], abs=1e-4)


def test_numbers_are_packed_over_the_ends_of_words():
    numbers = np.array([1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 7])
    assert packed(numbers, 3).tolist() == [0o72107654321 & 0xFFFFFFFF, 1]


def test_vectors_keep_their_length_and_direction():
    vectors = np.random.default_rng(1).normal(0, 1, (5, 48))
    away = np.linalg.norm(Codec(48, 4, 0).decoded(vectors) - vectors, axis=-1)
    assert (away / np.linalg.norm(vectors, axis=-1)).max() < 0.15
