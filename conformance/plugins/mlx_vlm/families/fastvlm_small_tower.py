"""fastvlm of the library with a vision tower of the same stages that a test can afford.

The library's tower has 125 million parameters whatever the config says: its sizes are attributes
of ``VisionConfig`` without a type, so ``from_dict`` reads none of them (models/fastvlm/config.py:39).
"""

from __future__ import annotations

from typing import ClassVar

from mlx_vlm.models.fastvlm import config, fastvlm
from mlx_vlm.models.fastvlm.config import TextConfig
from mlx_vlm.models.fastvlm.fastvlm import LanguageModel, Model, VisionModel

__all__ = ["LanguageModel", "Model", "ModelConfig", "TextConfig", "VisionConfig", "VisionModel"]

ModelConfig = fastvlm.ModelConfig


class VisionConfig(config.VisionConfig):
    """One block a stage, narrow; token mixers and downsampling are the library's."""

    layers: ClassVar = [1, 1, 1, 1, 1]
    embed_dims: ClassVar = [16, 16, 32, 32, 64]
    mlp_ratios: ClassVar = [2, 2, 2, 2, 2]
