"""mlx-vlm's typical_p removes nothing once another filter has removed a token.

mlx_vlm/sample_utils.py:336: a removed token has probability 0 and surprise inf, whose product is
nan: so are the entropy and all distances from it, and the order of tokens is undefined. With
top_n_sigma or p_less, which come first, typical_p has no effect or the effect of an accident. Fixed
by leaving removed tokens out of the sum.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.sample_utils import apply_top_n_sigma, apply_typical_p


def main() -> int:
    logprobs = mx.log(mx.array([[0.35, 0.5, 0.1, 0.05]]))
    print(f"mlx-vlm {version('mlx-vlm')}: expected one token of the two that top_n_sigma leaves")
    left = apply_top_n_sigma(logprobs, 1.0)
    kept = mx.isfinite(apply_typical_p(left, 0.5)).sum().item()
    print(f"left by top_n_sigma: {mx.isfinite(left).sum().item()}, then by typical_p: {kept}")
    return 0 if kept == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
