"""Stand-ins that split images into crops by the library's own functions, with small sizes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
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
