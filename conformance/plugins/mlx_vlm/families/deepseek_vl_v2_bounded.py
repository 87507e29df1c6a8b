"""deepseek_vl_v2 of the library with zeros behind its table of crops, which it reads past the end.

The library looks up as many images as there are tiles (models/deepseek_vl_v2/deepseek_vl_v2.py:325
to 333). What it finds behind the last one is stray memory, by which an image is lost or not, from
process to process and from call to call; docs/defects/mlx_vlm/deepseek_vl_v2.py shows it.
Everything else is the library's own.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.deepseek_vl_v2 import deepseek_vl_v2
from mlx_vlm.models.deepseek_vl_v2.config import (
    ModelConfig,
    ProjectorConfig,
    TextConfig,
    VisionConfig,
)
from mlx_vlm.models.deepseek_vl_v2.language import LanguageModel
from mlx_vlm.models.deepseek_vl_v2.vision import VisionModel

__all__ = [
    "LanguageModel",
    "Model",
    "ModelConfig",
    "ProjectorConfig",
    "TextConfig",
    "VisionConfig",
    "VisionModel",
]


class Model(deepseek_vl_v2.Model):
    """The library's, which finds no more images where there are none."""

    def get_input_embeddings(
        self,
        input_ids: mx.array | None = None,
        pixel_values: mx.array | None = None,
        images_spatial_crop: mx.array | None = None,
        images_seq_mask: mx.array | None = None,
        **kwargs: Any,
    ) -> Any:
        """As the library's, of a table with a row for each tile."""
        if pixel_values is not None and images_spatial_crop is not None:
            behind = max(0, pixel_values.shape[1] - images_spatial_crop.shape[1])
            images_spatial_crop = mx.pad(images_spatial_crop, [(0, 0), (0, behind), (0, 0)])
        return super().get_input_embeddings(
            input_ids, pixel_values, images_spatial_crop, images_seq_mask, **kwargs
        )
