"""hunyuan_vl in half precision: a prompt's numbers depend on what was asked before.

mlx_vlm/models/hunyuan_vl/language.py:45 makes the table of cosines anew only for a longer prompt
and casts it to that prompt's dtype. Images are embedded in float32, so that a text after a longer
image is rotated by cosines in float32, and the same text before by those in bfloat16. With a table
for each dtype both are the same.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.models.hunyuan_vl.language import HunyuanRotaryEmbedding


def main() -> int:
    print(
        f"mlx-vlm {version('mlx-vlm')}, hunyuan_vl: the dtype of the cosines of a text in bfloat16"
    )
    config = SimpleNamespace(
        head_dim=16, max_position_embeddings=64, rope_theta=10000.0, rope_scaling={"type": "xdrope"}
    )
    table = HunyuanRotaryEmbedding(config)
    text, image = mx.zeros((1, 1, 4, 16), mx.bfloat16), mx.zeros((1, 1, 8, 16), mx.float32)
    before = table(text, 4)[0].dtype
    table(image, 8)
    after = table(text, 4)[0].dtype
    print(f"before an image: {before}; after one: expected {before}, got {after}")
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
