"""Inkling's mask of padding is -inf in float16, and a row that sees nothing else becomes NaN.

mlx_vlm/models/inkling/language.py:212 and :216 mask with ``mx.array(-1e30, dtype)``, which float16
does not have. The queries of padding, which see only padding, then have no finite key: softmax
gives NaN, and of the layers above so do all rows, as 0 * NaN is NaN. In float32 and in bfloat16 it
is finite.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.inkling.language import banded_additive_mask

TOKENS = 4


def main() -> int:
    wrong = 0
    for dtype in (mx.float32, mx.bfloat16, mx.float16):
        rel, proj = mx.zeros((1, TOKENS, 1, 2), dtype), mx.zeros((2, TOKENS), dtype)
        mask = banded_additive_mask(rel, proj, 0, TOKENS, 0, TOKENS, left_padding=mx.array([2]))
        keys = mx.ones((1, 1, TOKENS, 8), dtype)
        out = mx.fast.scaled_dot_product_attention(keys, keys, keys, scale=1.0, mask=mask)
        bad = int(mx.isnan(out).any(axis=(0, 1, 3)).sum())
        wrong += bad
        print(f"mlx-vlm {version('mlx-vlm')}, {dtype}: NaN in {bad} of {TOKENS} queries")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
