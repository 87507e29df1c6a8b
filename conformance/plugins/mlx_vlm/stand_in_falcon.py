"""Stand in for the processors of the Falcon models, which put sentences of their own around images.

Each image becomes a run: the tokens before its patches, one token for each patch, its last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw


def falcon(args: dict[str, Any], parts: Sequence[tuple[int, ...] | Media]) -> dict[str, Any]:
    """Ids, pixels ``[images, height, width, 3]`` in -1 to 1, and grids ``[images, 2]``.

    Args:
        args: the side of a ``patch`` in pixels, of which the sizes of images are multiples; the
            ids ``before``, ``token`` and ``end``.
    """
    ids: list[int] = []
    pixels, shapes = [], []
    for part in parts:
        if not isinstance(part, Media):
            ids += part
            continue
        pixels.append(np.asarray(draw(part), dtype=np.float32) / 127.5 - 1)
        rows, columns = (side // args["patch"] for side in pixels[-1].shape[:2])
        shapes.append([rows, columns])
        ids += [*args["before"], *[args["token"]] * (rows * columns), args["end"]]
    return {
        "input_ids": mx.array(ids, mx.int32)[None],
        "pixel_values": mx.array(np.stack(pixels)),
        "image_grid_hw": mx.array(shapes, mx.int32),
    }
