"""deepseekocr of the library with a SAM encoder that a test can afford: ``small_sam``."""

from __future__ import annotations

from mlx_vlm.models.deepseekocr import deepseekocr
from mlx_vlm.models.deepseekocr.config import (
    ModelConfig,
    ProjectorConfig,
    TextConfig,
    VisionConfig,
)
from mlx_vlm.models.deepseekocr.language import LanguageModel
from mlx_vlm.models.deepseekocr.vision import VisionModel

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


class Model(deepseekocr.Model):
    """The library's, with the small encoder in place of its own, which is never evaluated."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.sam_model = SmallSAM(config.vision_config.hidden_size)
