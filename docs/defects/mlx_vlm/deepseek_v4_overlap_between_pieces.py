"""deepseek_v4 pools keys with the window before, but not across pieces of a prompt or in decoding.

With a ratio of 4 each pooled key is made of its own four tokens and the four before. The first
window of a call has none before it (mlx_vlm/models/deepseek_v4/language.py:403): zeros are put
there, also where earlier calls had tokens, and PoolingCache keeps only what fills no window yet.
So the first pooled key of every piece of a prompt and *all* that are made in decoding lack half of
what they are made of, and the answer depends on how the prompt was cut. (deepseek_v41 keeps a
state.) Fixed by keeping the last full window in the cache.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import PoolingCache
from mlx_vlm.models.deepseek_v4.config import ModelConfig
from mlx_vlm.models.deepseek_v4.language import Compressor

CONFIG = {"model_type": "deepseek_v4", "hidden_size": 32, "qk_rope_head_dim": 8}
RATIO, WIDTH, LENGTH = 4, 16, 12


def main() -> int:
    mx.random.seed(0)
    compressor = Compressor(ModelConfig.from_dict(CONFIG), RATIO, WIDTH)
    compressor.update(tree_map(lambda w: mx.random.normal(w.shape), compressor.parameters()))
    x = mx.random.normal((1, LENGTH, 32))
    whole = compressor(x, PoolingCache(RATIO), 0)
    print(f"mlx-vlm {version('mlx-vlm')}, deepseek_v4: {LENGTH // RATIO} pooled keys of {LENGTH}")
    print("tokens, in pieces against at once, expected 0 for each key")
    worst = 0.0
    for piece in (8, 4, 1):
        cache = PoolingCache(RATIO)
        for start in range(0, LENGTH, piece):
            pooled = compressor(x[:, start : start + piece], cache, start)
        apart = mx.abs(pooled - whole).max(axis=(0, 2)).tolist()
        print(f"pieces of {piece}: got", ", ".join(f"{a:.3g}" for a in apart))
        worst = max(worst, *apart)
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
