"""Stand in for processors of OCR models, which know pages of one fixed, large size only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from PIL import Image, ImageOps

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def deepseek_ocr(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``DeepseekOCRProcessor``: crops of a large image and the whole on a square, in one run.

    Left out: the id 0 before a prompt with an image, and that its last id is cut off.

    Args:
        args: ``whole``, the side of the square; ``crop``, the side of a crop, beyond which an
            image is cut into crops; the ids' ``token``; ``rows``, whether there is a token at the
            end of each row of features; ``always``, whether small images have a crop too.
    """
    ids: list[int] = []
    crops: list[mx.array] = []
    whole: list[mx.array] = []
    grids: list[list[int]] = []
    for part in parts:
        if not isinstance(part, Media):
            ids += part
            continue
        image: Any = draw(part)
        side = args["crop"]
        large = max(image.size) > side
        columns, rows = (max(1, round(length / side)) for length in image.size)
        if large or args["always"]:
            resized = image.resize((columns * side, rows * side))
            places = [(x, y) for y in range(rows) for x in range(columns)]
            boxes = [(x * side, y * side, (x + 1) * side, (y + 1) * side) for x, y in places]
            crops += [_normalised(resized.crop(box)) for box in boxes]
        grids.append([columns, rows])
        grey = (127, 127, 127)
        whole.append(_normalised(ImageOps.pad(image, (args["whole"],) * 2, color=grey)))
        ids += [args["token"]] * _length(args, columns, rows)
    shown = mx.stack(crops) if crops else mx.zeros((1, 3, args["whole"], args["whole"]))
    found = mx.array(ids, mx.int32)[None]
    return {
        "input_ids": found,
        "pixel_values": [shown, mx.stack(whole)],
        "images_seq_mask": found == args["token"],
        "images_spatial_crop": mx.array(grids),
        "num_image_tokens": _length(args, *grids[0]),
    }


def florence2(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Florence2Processor``: the tokens of the image before all text, the image on a square.

    Left out: the ids 0 and 2 around the text.

    Args:
        args: ``size``, the side of the square that an image becomes, and its ``tokens``; the ids'
            ``token``.
    """
    images = [draw(part) for part in parts if isinstance(part, Media)]
    text = [token for part in parts if not isinstance(part, Media) for token in part]
    ids = [args["token"]] * (args["tokens"] * len(images)) + text
    pixels = [_normalised(image.resize((args["size"],) * 2)) for image in images]
    return {
        "input_ids": mx.array(ids, mx.int32)[None],
        "pixel_values": mx.stack(pixels).astype(mx.float32),
    }


def got(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``GotOcrProcessor`` with its image processor; without the conversation around a prompt.

    Args:
        args: ``size``, the side of the square that an image becomes, and its ``tokens``; the ids
            ``token``, ``start`` and ``end``.
    """
    from mlx_vlm.models.got.processing_got import GotOcrImageProcessor  # noqa: PLC0415

    run = [args["start"], *[args["token"]] * args["tokens"], args["end"]]
    ids = [token for part in parts for token in (run if isinstance(part, Media) else part)]
    images = [draw(part) for part in parts if isinstance(part, Media)]
    pixels = GotOcrImageProcessor(args["size"])(images)["pixel_values"]
    return {"input_ids": mx.array(ids, mx.int32)[None], "pixel_values": mx.array(pixels)}


def _length(args: dict[str, Any], columns: int, rows: int) -> int:
    """The tokens of an image; SAM and the convolutions behind it make one of 64 x 64 pixels."""
    whole, crop = int(args["whole"]) // 64, int(args["crop"]) // 64
    if not args["rows"]:
        return columns * rows * crop * crop + whole * whole + 1
    cut = (crop * columns + 1) * crop * rows if columns * rows > 1 else 0
    return cut + (whole + 1) * whole + 1


def _normalised(image: Image.Image) -> mx.array:
    """bfloat16 ``[3, height, width]`` within +-1, as the library's ``ImageTransform``."""
    array = np.asarray(image.convert("RGB"), dtype=np.float32).transpose(2, 0, 1)
    return ((mx.array(array) / 255 - 0.5) / 0.5).astype(mx.bfloat16)
