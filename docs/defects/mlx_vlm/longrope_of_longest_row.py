"""LongRoPE takes the long factors for all rows of a batch as soon as one of them is long.

mlx_vlm/models/rope_utils.py:171 compares the end of the furthest row with
``original_max_position_embeddings``: a short row beside a long one is rotated by other frequencies
than alone, and its cached keys by those of the time when they came. The end is also the end of the
piece, so a prompt in pieces differs from the same prompt as a whole. Mended by a choice for each
row; a prompt in pieces needs to know its whole length beforehand.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.rope_utils import SuScaledRoPE


def main() -> int:
    mx.random.seed(0)
    rope = SuScaledRoPE(
        8,
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[1.0, 4.0, 16.0, 64.0],
    )
    x = mx.random.normal((2, 1, 1, 8))
    alone = rope(x[:1], offset=mx.array([100]))
    beside = rope(x, offset=mx.array([100, 5000]))[:1]
    rows = mx.abs(alone - beside).max().item()
    prompt = mx.random.normal((1, 1, 5000, 8))
    whole = rope(prompt)[:, :, :2048]
    piece = rope(prompt[:, :, :2048])
    pieces = mx.abs(whole - piece).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}: LongRoPE, long from 4096 on; expected differences: 0")
    print(f"a key at position 100 alone and beside a row at 5000: {rows:.3g}")
    print(f"the first 2048 keys of a prompt of 5000, in a piece and as a whole: {pieces:.3g}")
    return 1 if rows > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
