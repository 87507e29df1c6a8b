"""Stand in for processors whose tokenizer can't be made; their image processors are the library's.

Each image becomes a run: its first token, one token for each cell of its grid, its last token.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def grids(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """Ids, patches and grids.

    Args:
        args: ``module`` and ``name`` of the library's image processor, its ``options``; the ids
            ``token``, ``start`` and ``end``; ``merge``, the side of the square of patches that
            becomes a token.
    """
    return _grids(args, parts, lambda height, width: height * width)


def hunyuan_vl(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``HunYuanVLProcessor``: a token more for each row and two for each image; four positions.

    Args:
        args: as for ``grids``.
    """
    made = _grids(args, parts, lambda height, width: height * (width + 1) + 2)
    ids = np.array(made["input_ids"])
    positions = np.stack([np.arange(ids.shape[-1])] * 4)
    starts = np.where(ids[0] == args["start"])[0]
    ends = np.where(ids[0] == args["end"])[0]
    for start, (_, height, width) in zip(starts, made["image_grid_thw"].tolist(), strict=True):
        rows, columns = height // args["merge"], width // args["merge"] + 1
        cells = slice(start + 2, start + 2 + rows * columns)
        positions[1, cells] = np.tile(np.arange(columns), rows)
        positions[2, cells] = np.repeat(np.arange(rows), columns)
        positions[3, cells] = 0
    inside = [[int(start) + 1, int(end)] for start, end in zip(starts, ends, strict=True)]
    return {**made, "position_ids": mx.array(positions)[None], "imgs_pos": mx.array([inside])}


def spatial_shapes(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As the processor of Youtu-VL: one row of patches for all images, and each one's grid.

    Args:
        args: as for ``grids``.
    """
    made = _grids(args, parts, lambda height, width: height * width)
    shapes = made.pop("image_grid_thw")[:, 1:]
    return {**made, "pixel_values": made["pixel_values"][None], "spatial_shapes": shapes}


def _grids(args: dict[str, Any], parts: Parts, count: Any) -> dict[str, Any]:
    kind: Any = getattr(importlib.import_module(args["module"]), args["name"])
    processor = kind(**args["options"])
    ids: list[int] = []
    pixels, shapes = [], []
    for part in parts:
        if not isinstance(part, Media):
            ids += part
            continue
        made = processor.preprocess([draw(part)])
        pixels.append(np.asarray(made["pixel_values"], dtype=np.float32))
        shapes.append(np.asarray(made["image_grid_thw"])[0])
        height, width = (int(side) // args["merge"] for side in shapes[-1][1:])
        ids += [args["start"], *[args["token"]] * count(height, width), args["end"]]
    return {
        "input_ids": mx.array(ids, mx.int32)[None],
        "pixel_values": mx.array(np.concatenate(pixels)),
        "image_grid_thw": mx.array(np.stack(shapes)),
    }
