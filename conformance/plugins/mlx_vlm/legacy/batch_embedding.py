"""The embeddings of several prompts at once, which the batch generator of mlx-vlm 0.4 takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from conformance.plugins.mlx_vlm.inputs import Inputs, embed
from conformance.plugins.mlx_vlm.model import LoadedModel


def embed_together(loaded: LoadedModel, many: Sequence[Inputs]) -> dict[str, Any]:
    """The keyword arguments for several prompts at once, padded on the left as in 0.4.

    Source: ``mlx_vlm.generate._generate_batch`` of 0.4.4.
    """
    longest = max(made.input_ids.shape[1] for made in many)
    pads = [[(0, 0), (longest - made.input_ids.shape[1], 0)] for made in many]
    pixels = [made.pixel_values for made in many if made.pixel_values is not None]
    names = dict.fromkeys(name for made in many for name in made.extra)
    extra = {
        name: mx.concatenate([made.extra[name] for made in many if name in made.extra])
        for name in names
    }
    whole = Inputs(
        mx.concatenate([mx.pad(m.input_ids, p) for m, p in zip(many, pads, strict=True)]),
        mx.concatenate(pixels) if pixels else None,
        mx.concatenate([mx.pad(m.attention_mask, p) for m, p in zip(many, pads, strict=True)]),
        extra,
    )
    return embed(loaded, whole)
