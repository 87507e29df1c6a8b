"""Prompts of text and media: each medium's run of tokens stands where the medium stood."""

import numpy as np
from PIL import Image

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.stand_ins import parts

IMAGE, OTHER = Media("image", (8, 4)), Media("image", (4, 4), 1)
PROMPT = [(1, 2), IMAGE, (3,), OTHER]


def test_runs_take_the_places_of_the_media_in_order():
    assert parts.tokens_of(PROMPT, [[7, 7], [8]]) == [[1, 2], [7, 7], [3], [8]]
    assert parts.joined(PROMPT, [[7, 7], [8]]) == [1, 2, 7, 7, 3, 8]


def test_text_and_images_are_distinguished():
    assert parts.text(PROMPT) == [1, 2, 3]
    assert [image.size for image in parts.images(PROMPT)] == [(8, 4), (4, 4)]


def test_other_inputs_are_left_as_they_are():
    made = parts.inputs([1, 2], counts=[3])
    assert made["input_ids"].tolist() == [[1, 2]]
    assert made["counts"] == [3]


def test_pixels_are_scaled_to_one_and_minus_one():
    image = Image.new("RGB", (2, 1), (0, 255, 51))
    np.testing.assert_allclose(parts.scaled(image), [[[-1, 1, -0.6]] * 2], atol=1e-6)
    assert parts.square(image, 4).shape == (3, 4, 4)
    assert parts.scaled(image).dtype == parts.square(image, 4).dtype == np.float32
