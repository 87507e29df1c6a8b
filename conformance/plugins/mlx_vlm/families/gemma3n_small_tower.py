"""gemma3n of the library with a vision tower of the same kinds of blocks that a test can afford.

The library's tower has 300 million parameters whatever the config says (models/gemma3n/vision.py,
``gemma3n_mobilenet_def``). Everything else is the library's own.
"""

from __future__ import annotations

from typing import Any

from mlx.nn.layers.base import Module
from mlx_vlm.models.gemma3n import gemma3n, vision
from mlx_vlm.models.gemma3n.config import AudioConfig, ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.gemma3n.language import LanguageModel

__all__ = [
    "AudioConfig",
    "LanguageModel",
    "Model",
    "ModelConfig",
    "TextConfig",
    "VisionConfig",
    "VisionModel",
]

# Tokens along the sides of an image; 16 in the library, which takes a pair where it names a number.
_SIDES: Any = (3, 3)


class _Tower(vision.VisionTower):
    """One block of each kind in each of the four stages."""

    def __init__(self, config: VisionConfig) -> None:
        Module.__init__(self)
        self.conv_stem = vision.ConvNormAct(
            vision.Conv2dSame, 3, 8, kernel_size=3, stride=2, padding=0, eps=1e-5, bias=True
        )
        self.blocks = [
            [vision.EdgeResidual(exp_kernel_size=3, in_chs=8, out_chs=16, stride=2)],
            [_inverted(16, 24, 3, 5, stride=2), _inverted(24, 24, 5, 0)],
            [_inverted(24, 32, 5, 5, stride=2), _attention(32, kv_stride=2), _inverted(32, 32)],
            [_inverted(32, 48, 5, 5, stride=2), _attention(48, kv_stride=1), _inverted(48, 48)],
        ]
        self.num_features = self.head_hidden_size = 48
        self.msfa_indices = (3, 4)
        self.msfa_output_resolution = _SIDES
        self.msfa = vision.MobileNetV5MultiScaleFusionAdapter(
            in_chs=[32 + 48], out_chs=config.hidden_size, output_resolution=_SIDES
        )


def _inverted(inner: int, outer: int, start: int = 0, mid: int = 0, stride: int = 1) -> Any:
    return vision.UniversalInvertedResidual(
        in_chs=inner,
        out_chs=outer,
        dw_kernel_size_start=start,
        dw_kernel_size_mid=mid,
        stride=stride,
        exp_ratio=2.0,
    )


def _attention(width: int, *, kv_stride: int) -> Any:
    return vision.MobileAttention(
        in_chs=width,
        out_chs=width,
        stride=1,
        num_heads=2,
        key_dim=16,
        value_dim=16,
        kv_stride=kv_stride,
        act_layer=None,
    )


class VisionModel(vision.VisionModel):
    """The library's, around the small tower."""

    def __init__(self, config: VisionConfig) -> None:
        Module.__init__(self)
        self.model_type = config.model_type
        self.timm_model = _Tower(config)


class Model(gemma3n.Model):
    """The library's, with the small tower in place of its own, which is never evaluated."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.vision_tower = VisionModel(config.vision_config)
