"""Stands in for the processor of a model that reads pages of one fixed, large size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw

Parts = Sequence[tuple[int, ...] | Media]


def whole_page(args: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """As ``NemotronParseProcessor``: the image shrunk and centred on a page; no token of its own.

    Args:
        args: ``size``, the page's height and width.
    """
    from mlx_vlm.models.nemotron_parse.processing_nemotron_parse import (  # noqa: PLC0415
        NemotronParseImageProcessor,
    )

    made = NemotronParseImageProcessor(final_size=args["size"])
    images = [draw(part) for part in parts if isinstance(part, Media)]
    ids = [token for part in parts if not isinstance(part, Media) for token in part]
    pixels = made(images)["pixel_values"].astype(np.float32)
    return {"input_ids": mx.array(ids, mx.int32)[None], "pixel_values": mx.array(pixels)}
