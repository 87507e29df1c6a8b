"""Stand in for processors that cut images into crops of a size that no file can make small.

The crops, their patches and the order of their pooled places come from the library's own image
processors, made with small sizes; only the text around them is put together here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def molmo2(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Molmo2Processor``: the whole image at low resolution, then its crops.

    Args:
        args: ``size``, the side of a crop; ``patch``; ``margins``; ``max_crops``; the ids
            ``low_start``, ``start``, ``end``, ``token`` and ``column``.
    """
    from mlx_vlm.models.molmo2.processing import Molmo2ImageProcessor  # noqa: PLC0415

    processor: Any = Molmo2ImageProcessor(
        size={"height": args["size"], "width": args["size"]},
        max_crops=args["max_crops"],
        overlap_margins=args["margins"],
        patch_size=args["patch"],
    )
    made: Any = processor.preprocess([draw(part) for part in parts if isinstance(part, Media)])
    made.pop("_hi_pooled_dims")
    grids = iter(made["image_grids"].tolist())
    ids: list[int] = []
    for part in parts:
        if isinstance(part, Media):
            low_height, low_width, height, width = next(grids)
            low = [*[args["token"]] * low_width, args["column"]] * low_height
            ids += [args["low_start"], *low, args["end"], *_high(args, height, width)]
        else:
            ids += part
    return _inputs(ids, made)


def molmo_point(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``MolmoPointProcessor``, without the BOS that it writes before all.

    Args:
        args: as of ``molmo2``, and the id ``low`` of the low resolution's places.
    """
    from mlx_vlm.models.molmo_point.image_processing import preprocess_images  # noqa: PLC0415

    made = preprocess_images(
        [draw(part) for part in parts if isinstance(part, Media)],
        max_crops=args["max_crops"],
        overlap_margins=args["margins"],
        base_image_input_size=(args["size"], args["size"]),
        image_patch_size=args["patch"],
    )
    grids = iter(made["image_grids"].tolist())
    ids: list[int] = []
    own: list[int] = []
    for part in parts:
        if isinstance(part, Media):
            low_height, low_width, height, width = next(grids)
            low = [args["low"]] * (low_width * low_height)
            placed = [args["low_start"], *low, args["end"], *_high(args, height, width)]
        else:
            placed = list(part)
        ids += placed
        own += [int(isinstance(part, Media))] * len(placed)
    return {**_inputs(ids, made), "token_type_ids": mx.array([own])}


def jina_vlm(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``JinaVLMProcessor``: the whole image, then its crops; one shape for all images.

    Args:
        args: ``size``, the side of a crop; ``patch``; ``margins``; ``max_crops``;
            ``min_pixels``; the ids ``start``, ``end``, ``token`` and ``column``.
    """
    from mlx_vlm.models.jina_vlm.image_processor import ImageProcessor  # noqa: PLC0415

    processor: Any = ImageProcessor(
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
    made: Any = processor.preprocess([draw(part) for part in parts if isinstance(part, Media)])
    ids: list[int] = []
    places: list[Any] = []
    for part in parts:
        if isinstance(part, Media):
            places.append(made["image_input_idx"][len(places)] + len(ids))
            ids += made["image_tokens"][len(places) - 1].tolist()
        else:
            ids += part
    stacked = {name: np.stack(made[name]) for name in ("pixel_values", "image_masks")}
    return _inputs(ids, {**stacked, "image_input_idx": np.stack(places)})


def _high(args: dict[str, Any], height: int, width: int) -> list[int]:
    rows = [*[args["token"]] * width, args["column"]] * height
    return [args["start"], *rows, args["end"]]


def _inputs(ids: list[int], made: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: mx.array(np.asarray(value)) for name, value in made.items()}
    return {"input_ids": mx.array(ids, mx.int32)[None], **arrays}
