"""Defects of prefix caching: what the key of a prompt leaves out."""

from __future__ import annotations

import importlib
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import prefix_caching

_apc: Any = importlib.import_module("mlx_vlm.apc")
# Other names of sounds among processors' outputs than the one that the server knows.
_SOUNDS = (
    "audio_input_ids",
    "audio_features",
    "input_audio_embeds",
    "input_values",
    "sound_clips",
)


@mend("apc-sound-not-in-key")
def sounds_are_in_the_key(hits: Hits) -> Patch:
    """A prompt's key counts its sound under each name that a processor gives it.

    What the server does in the midst of other things is a function of the engine's here.
    """

    def key(right: Right, loaded: Any, made: Any, tenant: str = "") -> int:
        found: int = right(loaded, made, tenant)
        sounds = {name: made.extra[name] for name in _SOUNDS if made.extra.get(name) is not None}
        hits.hit_if(sounds)
        if not sounds:
            return found
        return int(_apc.semantic_extra_hash(image_hash=found, media=sounds))

    return wrap(prefix_caching, "semantic_hash", key)


@mend("apc-images-in-a-list")
def images_in_a_list_are_hashed(hits: Hits) -> Patch:
    """Of images in a list each is hashed, and none of them is dropped."""

    def payload(right: Right, pixel_values: Any = None, image_ref: Any = None) -> int:
        found: int = right(pixel_values, image_ref)
        if not isinstance(pixel_values, (list, tuple)):
            return found
        hashed = int(_apc._hash_payload(pixel_values))
        hits.hit_if(hashed != found)
        return hashed

    return wrap(_apc, "hash_image_payload", payload)
