"""deepseekocr_2 of the library with towers that a test can afford: ``small_sam`` and its like.

The library's second encoder has the released model's sizes whatever the config says
(models/deepseekocr_2/config.py:88), and 256 or 144 queries. Everything else is the library's own.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_vlm.models.deepseekocr.language import LanguageModel
from mlx_vlm.models.deepseekocr_2 import deepseekocr_2, vision
from mlx_vlm.models.deepseekocr_2.config import (
    ModelConfig,
    ProjectorConfig,
    Qwen2EncoderConfig,
    TextConfig,
    VisionConfig,
)
from mlx_vlm.models.deepseekocr_2.vision import VisionModel

from conformance.plugins.mlx_vlm.small_sam import SmallSAM

__all__ = [
    "LanguageModel",
    "Model",
    "ModelConfig",
    "ProjectorConfig",
    "TextConfig",
    "VisionConfig",
    "VisionModel",
]


class _Encoder(vision.Qwen2Decoder2Encoder):
    """One query for each feature: four of a whole image, one of a crop."""

    def __init__(self, width: int) -> None:
        super().__init__(
            Qwen2EncoderConfig(dim=width, layers=2, heads=4, kv_heads=2, intermediate_size=96)
        )
        self.query_1024 = mx.zeros((4, width))
        self.query_768 = mx.zeros((1, width))

    def __call__(self, sam_features: mx.array) -> mx.array:
        """Features see each other; queries see all features and the queries before them."""
        rows, _, _, width = sam_features.shape
        features = sam_features.reshape(rows, -1, width)
        count = features.shape[1]
        queries = self.query_1024 if count == self.query_1024.shape[0] else self.query_768
        h = mx.concatenate([features, mx.broadcast_to(queries, (rows, *queries.shape))], axis=1)
        place = mx.arange(h.shape[1])
        seen = mx.maximum(place, count - 1)[:, None] >= place
        mask = mx.where(seen, 0.0, -1e9).astype(h.dtype)[None, None]
        for layer in self.layers:
            h = layer(h, attention_mask=mask, position_ids=place[None])
        made: mx.array = self.norm(h)[:, count:]
        return made


class _Vision(vision.VisionModel):
    """The library's, around the small encoder."""

    def __init__(self, width: int) -> None:
        Module.__init__(self)
        self.qwen2_encoder = _Encoder(width)


class Model(deepseekocr_2.Model):
    """The library's, with the small towers in place of its own, which are never evaluated."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        width = config.vision_config.hidden_size
        self.sam_model = SmallSAM(width)
        self.vision_model = _Vision(width)
