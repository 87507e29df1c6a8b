"""ministral3 scales the queries of padding by the logarithm of zero.

A batch is padded on the left, so positions of padding are negative, and
_get_llama_4_attn_scale (mlx_vlm/models/ministral3/language.py:23; mistral3 and mistral4 have one of
their own) takes log(1 + floor(-1 / 8192)) = log(0) = -inf. Where attention puts the mask in the
place of scores nothing is seen of it. cuDNN's attention, which mlx uses on CUDA in half precision,
adds the mask: the padding's result is NaN, and the next layer's values of padding reach the row's
own tokens through weights of 0. Right is a position of 0 or more: mx.maximum(position, 0).
"""

import math
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.ministral3.language import _get_llama_4_attn_scale

PADDING, TOKENS, HEAD = (2, 0), 4, 64


def attended(kind: mx.Dtype, scale: mx.array) -> list[list[float]]:
    """Attention over values of 1: 1 for each token, whatever its score is."""
    ones = mx.ones((len(PADDING), 1, TOKENS, HEAD), kind)
    keys = ones * mx.array([1.0, -1.0] * (HEAD // 2), kind)  # so that -inf gives a score of NaN
    columns = mx.arange(TOKENS)
    own = columns >= mx.array(PADDING)[:, None, None, None]
    mask = own & (columns[None, :] <= columns[:, None])
    out = mx.fast.scaled_dot_product_attention(
        ones * scale.astype(kind), keys, ones, scale=1.0, mask=mask
    )
    return out[:, 0, :, 0].tolist()


def main() -> int:
    scale = _get_llama_4_attn_scale(TOKENS, -mx.array(PADDING), 0.1, 8192)
    found = scale[:, 0, :, 0].tolist()
    wrong = sum(not math.isfinite(one) for row in found for one in row)
    print(f"mlx-vlm {version('mlx-vlm')}, {mx.default_device()}: rows with a padding of {PADDING}")
    print(f"scales of queries: expected 1.0 each; got {found}")
    for kind in (mx.float32, mx.bfloat16):
        print(f"attention in {kind}: {attended(kind, scale)}")
    print(f"{wrong} of {len(PADDING) * TOKENS} scales are not finite")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
