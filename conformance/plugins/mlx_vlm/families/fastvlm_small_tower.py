"""fastvlm of the library with a vision tower of the same stages that a test can afford.

The library's tower has 125 million parameters whatever the config says: its sizes are attributes
of ``VisionConfig`` without a type, so ``from_dict`` reads none of them
(models/fastvlm/config.py:39).
"""

from __future__ import annotations

from mlx_vlm.models.fastvlm import config
from mlx_vlm.models.fastvlm.config import ModelConfig, TextConfig
from mlx_vlm.models.fastvlm.fastvlm import Model
from mlx_vlm.models.fastvlm.language import LanguageModel
from mlx_vlm.models.fastvlm.vision import VisionModel

__all__ = ["LanguageModel", "Model", "ModelConfig", "TextConfig", "VisionConfig", "VisionModel"]

_BLOCKS = [1, 1, 1, 1, 1]
_WIDTHS = [16, 16, 32, 32, 64]
_RATIOS = [2, 2, 2, 2, 2]


class VisionConfig(config.VisionConfig):
    """One block a stage, narrow; token mixers and downsampling are the library's."""

    layers = _BLOCKS
    embed_dims = _WIDTHS
    mlp_ratios = _RATIOS
