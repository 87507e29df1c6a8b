"""Near twins with media in traffic: what takes one for the other is found, on real families."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from miniatures.vision import findings, load_subject

from conformance.core.faults.patching import replace
from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm import engine
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.plugins.mlx_vlm.media import draw
from conformance.scenarios.workloads.traffic_media import TRAFFIC_MEDIA

EMBED = engine.embed


@pytest.fixture(scope="module")
def aya_vision():
    return load_subject("aya_vision")


def rows_found(subject, schedule):
    return {f.request_id for f in findings(subject, TRAFFIC_MEDIA, schedule)}


def first_of_the_tokens():
    """A prompt is embedded once: whatever it shows, equal tokens get the first one's picture."""
    known = {}

    def embed(loaded, made):
        tokens = tuple(made.input_ids[0].tolist())
        return known.setdefault(tokens, EMBED(loaded, made))

    return embed


def without_the_fourth(loaded, made):
    """The last quarter of four pictures is not seen."""
    pixels = made.pixel_values
    if pixels is not None and len(pixels) >= 4:
        seen = len(pixels) // 4 * 3
        pixels = mx.concatenate([pixels[:seen], mx.zeros_like(pixels[seen:])])
    return EMBED(loaded, dataclasses.replace(made, pixel_values=pixels))


@pytest.mark.parametrize("wrong", [first_of_the_tokens(), without_the_fourth])
def test_a_picture_that_is_not_seen_is_found(aya_vision, wrong):
    assert rows_found(aya_vision, "image_busy") == set()
    with replace(engine, "embed", wrong):
        assert rows_found(aya_vision, "image_busy")


def test_a_key_of_the_first_bytes_of_a_picture_is_found():
    def key(*, pixel_values, **_):
        return hash(np.array(pixel_values).tobytes()[:4096])

    subject = load_subject("gemma3")
    assert rows_found(subject, "image_kept") == set()
    with replace(part("apc"), "hash_image_payload", key):
        assert "twin" in rows_found(subject, "image_kept")


@pytest.mark.parametrize("size", [(16, 8), (2, 8, 4), (32,)])
def test_a_twin_differs_in_its_end_alone(size):
    kind = {2: "image", 3: "video", 1: "audio"}[len(size)]
    one, twin = (np.asarray(draw(Media(kind, size, twin=twin))) for twin in (False, True))
    apart = np.flatnonzero(one.ravel() != twin.ravel())
    assert apart.tolist() == [one.size - 1]
