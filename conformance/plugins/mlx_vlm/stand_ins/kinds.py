"""All stand-ins by the names that families use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conformance.core.errors import FamilyError
from conformance.core.family import Family, StandIn
from conformance.plugins.mlx_vlm.stand_ins import crops, grids
from conformance.plugins.mlx_vlm.stand_ins.parts import Parts

Maker = Callable[[dict[str, Any], Parts], dict[str, Any]]


def process(stand_in: StandIn, family: Family, parts: Parts) -> dict[str, Any]:
    """The result of ``mlx_vlm.utils.prepare_inputs``, made by the family's stand-in.

    It has ``input_ids``, ``pixel_values`` and any other arguments of ``get_input_embeddings``.

    Raises:
        FamilyError: there is no stand-in of this kind.
    """
    if stand_in.kind not in MAKERS:
        raise FamilyError(
            f"{family.path or family.name}: conformance.stand_in.kind {stand_in.kind!r} is none "
            f"of {', '.join(MAKERS)}"
        )
    return MAKERS[stand_in.kind](stand_in.args, parts)


MAKERS: Mapping[str, Maker] = {
    "deepseek_ocr": crops.deepseek_ocr,
    "falcon": grids.falcon,
    "fixed": grids.fixed,
    "florence2": grids.florence2,
    "gemma4_unified": grids.gemma4_patches,
    "got": grids.got,
    "grids": grids.grids,
    "hunyuan_vl": grids.hunyuan_vl,
    "jina_vlm": crops.jina_vlm,
    "molmo2": crops.molmo2,
    "molmo_point": crops.molmo_point,
    "moondream": crops.moondream,
    "naflex": grids.naflex,
    "spatial_shapes": grids.spatial_shapes,
    "squares_and_whole": crops.squares_and_whole,
    "tiles_and_thumbnail": crops.tiles_and_thumbnail,
    "whole_page": grids.whole_page,
}
