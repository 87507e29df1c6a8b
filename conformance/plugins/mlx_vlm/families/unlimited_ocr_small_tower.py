"""unlimited_ocr of the library with a SAM encoder that a test can afford.

The library's encoder has the released model's sizes whatever the config says
(models/deepseekocr/deepseekocr.py:103). Everything else is the library's own.
"""

from __future__ import annotations

from mlx.nn.layers.convolution import Conv2d
from mlx_vlm.models.deepseekocr.sam import SAMEncoder
from mlx_vlm.models.unlimited_ocr import unlimitedocr
from mlx_vlm.models.unlimited_ocr.config import (
    ModelConfig,
    ProjectorConfig,
    TextConfig,
    VisionConfig,
)
from mlx_vlm.models.unlimited_ocr.language import LanguageModel
from mlx_vlm.models.unlimited_ocr.unlimitedocr import VisionModel

__all__ = [
    "LanguageModel",
    "Model",
    "ModelConfig",
    "ProjectorConfig",
    "TextConfig",
    "VisionConfig",
    "VisionModel",
]


class _SAM(SAMEncoder):
    """Blocks with windows and one without; its two last convolutions are 256 and 512 wide there."""

    def __init__(self, width: int) -> None:
        super().__init__(
            img_size=128,
            embed_dim=32,
            depth=3,
            num_heads=2,
            out_chans=32,
            window_size=3,
            global_attn_indexes=(1,),
            final_out_chans=width,
        )
        self.net_2 = Conv2d(32, 48, kernel_size=3, stride=2, padding=1, bias=False)
        self.net_3 = Conv2d(48, width, kernel_size=3, stride=2, padding=1, bias=False)


class Model(unlimitedocr.Model):
    """The library's, with the small encoder in place of its own, which is never evaluated."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.sam_model = _SAM(config.vision_config.hidden_size)
