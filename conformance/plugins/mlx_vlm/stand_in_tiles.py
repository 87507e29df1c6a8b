"""Stand in for processors that cut images into tiles of a size that no file can make small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from PIL import Image

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def tiles_and_thumbnail(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Plamo2VLProcessor``: tiles of the image's shape, then the whole image, in one run.

    Args:
        args: ``tile``, the side of a tile; ``max_tiles``; ``tokens`` of each tile; the ids
            ``token``, ``start`` and ``end``.
    """
    from mlx_vlm.models.plamo2vl import processing  # noqa: PLC0415

    ids: list[int] = []
    pixels: list[Any] = []
    for part in parts:
        if not isinstance(part, Media):
            ids += part
            continue
        tiles = processing._dynamic_preprocess_eagle2_image(
            draw(part), image_size=args["tile"], max_num=args["max_tiles"], use_thumbnail=True
        )
        pixels += [_normalised(tile, args["tile"]) for tile in tiles]
        ids += [args["start"], *[args["token"]] * (args["tokens"] * len(tiles)), args["end"]]
    return {"input_ids": mx.array(ids, mx.int32)[None], "pixel_values": mx.array(np.stack(pixels))}


def squares_and_whole(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Step3VLProcessor``: a large image's squares row by row, then the whole image.

    Args:
        args: ``size``, the side to which the whole image is resized and beyond which it is cut;
            ``window``, the side of what is cut out; ``square``, to which that is resized;
            ``whole_tokens`` and ``square_tokens``; the ids ``token``, ``start``, ``end``,
            ``square_start``, ``square_end`` and ``newline``.
    """
    ids: list[int] = []
    whole: list[Any] = []
    squares: list[Any] = []
    counts: list[int] = []
    for part in parts:
        if not isinstance(part, Media):
            ids += part
            continue
        image: Any = draw(part)
        side = max(image.size)
        padded = Image.new("RGB", (side, side))
        padded.paste(image, (0, 0))
        cut = _squares(padded, args["window"]) if side > args["size"] else []
        whole.append(_normalised(padded, args["size"]))
        squares += [_normalised(square, args["square"]) for square in cut]
        counts.append(len(cut))
        columns = -(-side // args["window"])
        for place in range(1, len(cut) + 1):
            ids += [args["square_start"], *[args["token"]] * args["square_tokens"]]
            ids.append(args["square_end"])
            if place % columns == 0 and place < len(cut):
                ids.append(args["newline"])
        ids += [args["start"], *[args["token"]] * args["whole_tokens"], args["end"]]
    made: dict[str, Any] = {
        "input_ids": mx.array(ids, mx.int32)[None],
        "pixel_values": mx.array(np.stack(whole)),
        "num_patches": counts,
    }
    if squares:
        made["patch_pixel_values"] = mx.array(np.stack(squares))
    return made


def _squares(image: Image.Image, window: int) -> list[Image.Image]:
    starts = range(0, image.size[0], window)
    return [image.crop((x, y, x + window, y + window)) for y in starts for x in starts]


def _normalised(image: Image.Image, side: int) -> np.ndarray:
    """``[3, side, side]`` within +-1."""
    array = np.asarray(image.convert("RGB").resize((side, side)), dtype=np.float32)
    return array.transpose(2, 0, 1) / 127.5 - 1
