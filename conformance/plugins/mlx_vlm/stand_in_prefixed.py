"""Stand in for processors that put the one image of a prompt before all of its text."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def moondream(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Moondream3Processor``: a BOS, the places of the image, the question between words.

    The places have the id of the BOS, as there; their number is that of the model's features.

    Args:
        args: ``crop``, the side of a crop; ``margin``, in patches; ``max_crops``; ``tokens``, the
            number of places; the ids ``bos``, and those ``before`` and ``after`` the question.
    """
    crops: Any = importlib.import_module("mlx_vlm.models.moondream3.image_crops")
    pixels: list[np.ndarray] = []
    counts: list[int] = []
    layouts: list[tuple[int, int] | None] = []
    for part in parts:
        if isinstance(part, Media):
            made, layout = crops.create_crops(
                draw(part), args["crop"], args["max_crops"], args["margin"]
            )
            pixels += made
            counts.append(len(made))
            layouts.append(layout)
    text = [token for part in parts if not isinstance(part, Media) for token in part]
    ids = [args["bos"]] * (1 + args["tokens"]) + [*args["before"], *text, *args["after"]]
    return {
        "input_ids": mx.array(ids, mx.int32)[None],
        "pixel_values": mx.array(np.stack(pixels)),
        "num_crops": counts,
        "crop_layouts": layouts,
    }
