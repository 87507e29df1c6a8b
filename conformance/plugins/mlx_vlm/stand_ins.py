"""Stand-ins for processors that can't be made without downloads: tensors of the same shapes.

A stand-in gives what ``mlx_vlm.utils.prepare_inputs`` would: ``input_ids``, ``pixel_values``,
``attention_mask`` and whatever else the model's ``get_input_embeddings`` wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.errors import FamilyError
from conformance.core.family import Family, StandIn
from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm import (
    stand_in_crops,
    stand_in_falcon,
    stand_in_gemma4_unified,
    stand_in_grids,
    stand_in_naflex,
    stand_in_ocr,
    stand_in_pages,
    stand_in_prefixed,
    stand_in_tiles,
)
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]
Maker = Callable[[dict[str, Any], Parts], dict[str, Any]]


def process(stand_in: StandIn, family: Family, parts: Parts) -> dict[str, Any]:
    """The inputs that the family's stand-in makes of a prompt.

    Raises:
        FamilyError: there is no stand-in of that kind.
    """
    if stand_in.kind not in MAKERS:
        raise FamilyError(
            f"{family.path or family.name}: conformance.stand_in.kind {stand_in.kind!r} is none "
            f"of {', '.join(MAKERS)}"
        )
    return MAKERS[stand_in.kind](stand_in.args, parts)


def _fixed(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """Each image resized to ``size`` x ``size`` pixels becomes ``tokens`` times ``token``.

    ``pixel_values`` are ``[images, 3, size, size]`` or, with ``channels_last``, its like.
    """
    ids: list[int] = []
    pixels = []
    for part in parts:
        if isinstance(part, Media):
            ids += [args["token"]] * args["tokens"]
            pixels.append(_pixels(part, args["size"]))
        else:
            ids += part
    values = np.stack(pixels)
    if not args.get("channels_last", False):
        values = values.transpose(0, 3, 1, 2)
    return {"input_ids": mx.array(ids, mx.int32)[None], "pixel_values": mx.array(values)}


def _pixels(media: Media, size: int) -> np.ndarray:
    image: Any = draw(media)
    array = np.asarray(image.resize((size, size)), dtype=np.float32)
    return array / 127.5 - 1


MAKERS: Mapping[str, Maker] = {
    "deepseek_ocr": stand_in_ocr.deepseek_ocr,
    "falcon": stand_in_falcon.falcon,
    "fixed": _fixed,
    "florence2": stand_in_ocr.florence2,
    "gemma4_unified": stand_in_gemma4_unified.process,
    "got": stand_in_ocr.got,
    "grids": stand_in_grids.grids,
    "hunyuan_vl": stand_in_grids.hunyuan_vl,
    "jina_vlm": stand_in_crops.jina_vlm,
    "molmo2": stand_in_crops.molmo2,
    "molmo_point": stand_in_crops.molmo_point,
    "moondream": stand_in_prefixed.moondream,
    "naflex": stand_in_naflex.naflex,
    "spatial_shapes": stand_in_grids.spatial_shapes,
    "squares_and_whole": stand_in_tiles.squares_and_whole,
    "tiles_and_thumbnail": stand_in_tiles.tiles_and_thumbnail,
    "whole_page": stand_in_pages.whole_page,
}
