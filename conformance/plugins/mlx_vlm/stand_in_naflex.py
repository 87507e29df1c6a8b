"""Stands in for a processor of patches whose image processor needs more than is installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def naflex(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``Phi4SigLipProcessor``: one id for each image; patches, their mask and their grid.

    The patches come from the library's own processor of ``phi4mm``, which neither enlarges an
    image beyond ``min_patches`` nor shrinks it within ``max_patches``, as the checkpoint's own.

    Args:
        args: the id ``token``; ``patch``, the side of a patch; ``min_patches``; ``max_patches``.
    """
    module: Any = importlib.import_module("mlx_vlm.models.phi4mm.processing_phi4mm")
    processor = module.Phi4MMImageProcessor(
        patch_size=args["patch"],
        min_num_patches=args["min_patches"],
        max_num_patches=args["max_patches"],
    )
    made = processor([draw(part) for part in parts if isinstance(part, Media)])
    ids: list[int] = []
    for part in parts:
        ids += [args["token"]] if isinstance(part, Media) else part
    return {"input_ids": mx.array(ids, mx.int32)[None], **dict(made.items())}
