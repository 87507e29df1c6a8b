"""Stand-ins that cut images themselves, for processors whose sizes no file can make small."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from PIL import Image, ImageOps

from conformance.plugins.mlx_vlm.stand_ins.parts import Parts, images, inputs, joined, square
from conformance.plugins.mlx_vlm.stand_ins.whole_images import normalised

_GREY = (127, 127, 127)


def deepseek_ocr(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``DeepseekOCRProcessor``: crops of a large image and the whole on a square, in one run.

    Left out: the id 0 before a prompt with an image, and cutting off its last id.

    Args:
        args: ``whole``, the side of the square; ``crop``, the side of a crop, beyond which an
            image is cut into crops; the ids' ``token``; ``rows``, whether there is a token at the
            end of each row of features; ``always``, whether small images have a crop too.
    """
    side = args["crop"]
    crops: list[mx.array] = []
    whole: list[mx.array] = []
    grids: list[list[int]] = []
    for image in images(parts):
        columns, rows = (max(1, round(length / side)) for length in image.size)
        if max(image.size) > side or args["always"]:
            resized = image.resize((columns * side, rows * side))
            crops += [normalised(crop) for crop in _cut(resized, side)]
        grids.append([columns, rows])
        whole.append(normalised(ImageOps.pad(image, (args["whole"],) * 2, color=_GREY)))
    counts = [_length(args, *grid) for grid in grids]
    shown = mx.stack(crops) if crops else mx.zeros((1, 3, args["whole"], args["whole"]))
    made = inputs(joined(parts, [[args["token"]] * count for count in counts]))
    return {
        **made,
        "pixel_values": [shown, mx.stack(whole)],
        "images_seq_mask": made["input_ids"] == args["token"],
        "images_spatial_crop": mx.array(grids),
        "num_image_tokens": counts[0],
    }


def squares_and_whole(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Step3VLProcessor``: a large image's squares row by row, then the whole image.

    Args:
        args: ``size``, the side to which the whole image is resized and beyond which it is cut;
            ``window``, the side of a cut-out; ``square``, the side to which it is resized;
            ``whole_tokens`` and ``square_tokens``; the ids ``token``, ``start``, ``end``,
            ``square_start``, ``square_end`` and ``newline``.
    """
    runs: list[list[int]] = []
    whole: list[Any] = []
    squares: list[Any] = []
    counts: list[int] = []
    for image in images(parts):
        side = max(image.size)
        padded = Image.new("RGB", (side, side))
        padded.paste(image, (0, 0))
        cut = _cut(padded, args["window"]) if side > args["size"] else []
        whole.append(square(padded, args["size"]))
        squares += [square(one, args["square"]) for one in cut]
        counts.append(len(cut))
        runs.append(_run(args, len(cut), columns=-(-side // args["window"])))
    made = inputs(joined(parts, runs), pixel_values=mx.array(np.stack(whole)), num_patches=counts)
    return {**made, "patch_pixel_values": mx.array(np.stack(squares))} if squares else made


def _run(args: dict[str, Any], squares: int, *, columns: int) -> list[int]:
    """The tokens of an image: its squares, with a new line between rows, then the whole."""
    ids: list[int] = []
    for place in range(1, squares + 1):
        ids += [args["square_start"], *[args["token"]] * args["square_tokens"], args["square_end"]]
        if place % columns == 0 and place < squares:
            ids.append(args["newline"])
    return [*ids, args["start"], *[args["token"]] * args["whole_tokens"], args["end"]]


def _cut(image: Image.Image, side: int) -> list[Image.Image]:
    """Squares of this side, row by row; the last of a row or column may reach beyond the image."""
    width, height = image.size
    places = [(x, y) for y in range(0, height, side) for x in range(0, width, side)]
    return [image.crop((x, y, x + side, y + side)) for x, y in places]


def _length(args: dict[str, Any], columns: int, rows: int) -> int:
    """The number of an image's tokens: SAM and its convolutions make one of 64 x 64 pixels."""
    whole, crop = int(args["whole"]) // 64, int(args["crop"]) // 64
    if not args["rows"]:
        return columns * rows * crop * crop + whole * whole + 1
    cut = (crop * columns + 1) * crop * rows if columns * rows > 1 else 0
    return cut + (whole + 1) * whole + 1
