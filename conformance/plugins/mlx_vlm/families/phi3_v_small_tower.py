"""phi3_v of the library with a CLIP tower of the same kind that a test can afford.

The library's tower has 300 million parameters whatever the config says (models/phi3_v/vision.py,
``CLIP_VIT_LARGE_PATCH14_336_CONFIG``). Image and patch size are its own, because the number of
places of an image is fixed too.
"""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
from mlx.nn.layers.activations import GELU
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx_vlm.models.phi3_v import phi3_v, vision
from mlx_vlm.models.phi3_v.config import ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.phi3_v.language import LanguageModel

__all__ = ["LanguageModel", "Model", "ModelConfig", "TextConfig", "VisionConfig", "VisionModel"]

_WIDTH = 32
_TOWER = SimpleNamespace(
    model_type="phi3_v",
    hidden_size=_WIDTH,
    image_size=336,
    intermediate_size=48,
    layer_norm_eps=1e-05,
    num_attention_heads=2,
    num_channels=3,
    num_hidden_layers=3,
    patch_size=14,
)


class VisionModel(vision.VisionModel):
    """The library's, around the small tower."""

    def __init__(self, config: ModelConfig) -> None:
        Module.__init__(self)
        self.model_type = config.model_type
        self.img_processor = vision.ClipVModel(_TOWER)
        self.image_dim_out = _WIDTH
        self.glb_GN = mx.zeros([1, 1, _WIDTH * 4])
        self.sub_GN = mx.zeros([1, 1, 1, _WIDTH * 4])
        self.img_projection = [
            Linear(_WIDTH * 4, config.hidden_size),
            GELU(),
            Linear(config.hidden_size, config.hidden_size),
        ]


class Model(phi3_v.Model):
    """The library's, with the small tower in place of its own, which is never evaluated."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.model.vision_embed_tokens = VisionModel(config)
