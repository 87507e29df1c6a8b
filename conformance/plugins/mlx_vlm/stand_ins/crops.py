"""Stand-ins that split images into crops or squares, by the library's functions if it has them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from PIL import Image, ImageOps

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.stand_ins.grids import normalised
from conformance.plugins.mlx_vlm.stand_ins.parts import (
    Parts,
    images,
    inputs,
    joined,
    square,
    text,
    tokens_of,
)


def molmo2(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Molmo2Processor``: the whole image at low resolution, then its crops.

    Args:
        args: ``size``, the side of a crop; ``patch``; ``margins``; ``max_crops``; the ids
            ``low_start``, ``start``, ``end``, ``token`` and ``column``.
    """
    processor = _library("molmo2.processing").Molmo2ImageProcessor(
        size={"height": args["size"], "width": args["size"]},
        max_crops=args["max_crops"],
        overlap_margins=args["margins"],
        patch_size=args["patch"],
    )
    made = processor.preprocess(images(parts))
    made.pop("_hi_pooled_dims")
    runs = []
    for low_height, low_width, height, width in made["image_grids"].tolist():
        low = [*[args["token"]] * low_width, args["column"]] * low_height
        runs.append([args["low_start"], *low, args["end"], *_high(args, height, width)])
    return inputs(joined(parts, runs), **_arrays(made))


def molmo_point(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``MolmoPointProcessor``, without the BOS at its beginning.

    Args:
        args: those of ``molmo2``, and the id ``low`` of the low resolution's places.
    """
    made = _library("molmo_point.image_processing").preprocess_images(
        images(parts),
        max_crops=args["max_crops"],
        overlap_margins=args["margins"],
        base_image_input_size=(args["size"], args["size"]),
        image_patch_size=args["patch"],
    )
    runs = []
    for low_height, low_width, height, width in made["image_grids"].tolist():
        low = [args["low"]] * (low_width * low_height)
        runs.append([args["low_start"], *low, args["end"], *_high(args, height, width)])
    types = [
        int(isinstance(part, Media))
        for part, tokens in zip(parts, tokens_of(parts, runs), strict=True)
        for _ in tokens
    ]
    return inputs(joined(parts, runs), **_arrays(made), token_type_ids=mx.array([types]))


def jina_vlm(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``JinaVLMProcessor``: the whole image, then its crops; one shape for all images.

    Args:
        args: ``size``, the side of a crop; ``patch``; ``margins``; ``max_crops``;
            ``min_pixels``; the ids ``start``, ``end``, ``token`` and ``column``.
    """
    processor = _library("jina_vlm.image_processor").ImageProcessor(
        base_input_size=(args["size"], args["size"]),
        patch_size=args["patch"],
        max_crops=args["max_crops"],
        min_pixels=args["min_pixels"],
        overlap_margins=tuple(args["margins"]),
        patch_token_id=args["token"],
        start_token_id=args["start"],
        end_token_id=args["end"],
        column_token_id=args["column"],
    )
    made = processor.preprocess(images(parts))
    tokens = tokens_of(parts, [run.tolist() for run in made["image_tokens"]])
    starts = np.cumsum([0, *map(len, tokens)])
    firsts = [int(starts[at]) for at, part in enumerate(parts) if isinstance(part, Media)]
    places = [index + first for index, first in zip(made["image_input_idx"], firsts, strict=True)]
    stacked = {name: np.stack(made[name]) for name in ("pixel_values", "image_masks")}
    ids = [token for run in tokens for token in run]
    return inputs(ids, **_arrays({**stacked, "image_input_idx": np.stack(places)}))


def moondream(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Moondream3Processor``: a BOS, the places of the one image, the question between words.

    As in the processor, the places have the id of the BOS; there is one for each feature.

    Args:
        args: ``crop``, the side of a crop; ``margin``, in patches; ``max_crops``; ``tokens``, the
            number of places; the ids ``bos``, and those ``before`` and ``after`` the question.
    """
    create = _library("moondream3.image_crops").create_crops
    options = (args["crop"], args["max_crops"], args["margin"])
    made = [create(image, *options) for image in images(parts)]
    ids = [args["bos"]] * (1 + args["tokens"]) + [*args["before"], *text(parts), *args["after"]]
    return inputs(
        ids,
        pixel_values=mx.array(np.stack([crop for crops, _ in made for crop in crops])),
        num_crops=[len(crops) for crops, _ in made],
        crop_layouts=[layout for _, layout in made],
    )


def tiles_and_thumbnail(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Plamo2VLProcessor``: tiles of the image's shape, then the whole image, in one run.

    Args:
        args: ``tile``, the side of a tile; ``max_tiles``; ``tokens`` of each tile; the ids
            ``token``, ``start`` and ``end``.
    """
    cut = _library("plamo2vl.processing")._dynamic_preprocess_eagle2_image
    sizes = {"image_size": args["tile"], "max_num": args["max_tiles"]}
    tiles = [cut(image, **sizes, use_thumbnail=True) for image in images(parts)]
    runs = [
        [args["start"], *[args["token"]] * (args["tokens"] * len(some)), args["end"]]
        for some in tiles
    ]
    pixels = [square(tile, args["tile"]) for some in tiles for tile in some]
    return inputs(joined(parts, runs), pixel_values=mx.array(np.stack(pixels)))


def _library(module: str) -> Any:
    return importlib.import_module(f"mlx_vlm.models.{module}")


def _high(args: dict[str, Any], height: int, width: int) -> list[int]:
    """The tokens of the crops: rows of places, each with its end."""
    rows = [*[args["token"]] * width, args["column"]] * height
    return [args["start"], *rows, args["end"]]


def _arrays(made: Mapping[str, Any]) -> dict[str, mx.array]:
    return {name: mx.array(np.asarray(value)) for name, value in made.items()}


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
