"""The SAM encoder of the DeepSeek-OCR families, of a size that a test can afford.

The library's encoder has the released model's sizes whatever the config says
(models/deepseekocr/deepseekocr.py:103, models/deepseekocr_2/deepseekocr_2.py:37). The families'
model files put this one in its place.
"""

from __future__ import annotations

from mlx.nn.layers.convolution import Conv2d
from mlx_vlm.models.deepseekocr.sam import SAMEncoder


class SmallSAM(SAMEncoder):
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
