"""Stand-ins that turn each image into patches and their grid."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.plugins.mlx_vlm.stand_ins.parts import Parts, images, inputs, joined, scaled


def grids(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """Ids, patches and grids of the library's image processor, for which no tokenizer exists.

    Each image is a run: its first token, one for each cell of its grid, its last token.

    Args:
        args: ``module`` and ``name`` of the library's image processor, its ``options``; the ids
            ``token``, ``start`` and ``end``; ``merge``, the side of the square of patches that
            becomes a token.
    """
    return _grids(args, parts, lambda height, width: height * width)


def hunyuan_vl(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``HunYuanVLProcessor``: one more token for each row, two for each image; four positions.

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
    made = grids(args, parts)
    shapes = made.pop("image_grid_thw")[:, 1:]
    return {**made, "pixel_values": made["pixel_values"][None], "spatial_shapes": shapes}


def falcon(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As the processors of the Falcon models, which put sentences of their own around images.

    Pixels ``[images, height, width, 3]`` within +-1, grids ``[images, 2]``.

    Args:
        args: the side of a ``patch`` in pixels, of which the sizes of images are multiples; the
            ids ``before``, ``token`` and ``end``.
    """
    pixels = [scaled(image) for image in images(parts)]
    shapes = [[side // args["patch"] for side in one.shape[:2]] for one in pixels]
    runs = [
        [*args["before"], *[args["token"]] * (rows * columns), args["end"]]
        for rows, columns in shapes
    ]
    return inputs(
        joined(parts, runs),
        pixel_values=mx.array(np.stack(pixels)),
        image_grid_hw=mx.array(shapes, mx.int32),
    )


def naflex(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Phi4SigLipProcessor``: one id for each image; patches, their mask and their grid.

    Its image processor needs packages that are not installed. The patches come from the library's
    image processor of ``phi4mm``, which like the checkpoint's own neither enlarges an image beyond
    ``min_patches`` nor shrinks it within ``max_patches``.

    Args:
        args: the id ``token``; ``patch``, the side of a patch; ``min_patches``; ``max_patches``.
    """
    library: Any = importlib.import_module("mlx_vlm.models.phi4mm.processing_phi4mm")
    processor = library.Phi4MMImageProcessor(
        patch_size=args["patch"],
        min_num_patches=args["min_patches"],
        max_num_patches=args["max_patches"],
    )
    shown = images(parts)
    ids = joined(parts, [[args["token"]]] * len(shown))
    return inputs(ids, **dict(processor(shown).items()))


def _grids(args: dict[str, Any], parts: Parts, count: Callable[[int, int], int]) -> dict[str, Any]:
    """As ``grids``, with ``count(height, width)`` tokens between an image's first and last."""
    kind: Any = getattr(importlib.import_module(args["module"]), args["name"])
    processor = kind(**args["options"])
    runs, pixels, shapes = [], [], []
    for image in images(parts):
        made = processor.preprocess([image])
        pixels.append(np.asarray(made["pixel_values"], dtype=np.float32))
        shapes.append(np.asarray(made["image_grid_thw"])[0])
        height, width = (int(side) // args["merge"] for side in shapes[-1][1:])
        runs.append([args["start"], *[args["token"]] * count(height, width), args["end"]])
    return inputs(
        joined(parts, runs),
        pixel_values=mx.array(np.concatenate(pixels)),
        image_grid_thw=mx.array(np.stack(shapes)),
    )
