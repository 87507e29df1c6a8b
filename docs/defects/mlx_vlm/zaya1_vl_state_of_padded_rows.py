"""zaya1_vl takes the state of its convolutions at the padded end of a right-padded row.

mlx_vlm/models/zaya1_vl/language.py:70 keeps the last columns of the batch, and line 246 the last
column, as what comes before the next token. In a batch with reused prefixes the rows are padded on
the right (mlx_vlm/generate/ar.py:2738), and ``prepare(lengths=...)`` has set them: nobody
looks. Fixed by taking the columns that end at each row's own length, as lfm2 does.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import ArraysCache, CacheList, KVCache
from mlx_vlm.models.zaya1_vl.config import TextConfig
from mlx_vlm.models.zaya1_vl.language import CCA

LONG, SHORT = 8, 5


def states(layer: CCA, hidden: mx.array, lengths: list[int]) -> list[mx.array]:
    cache = CacheList(KVCache(), ArraysCache(2))
    cache[1].prepare(lengths=lengths)
    layer(hidden, cache)
    return [cache[1][0], cache[1][1]]


def main() -> int:
    mx.random.seed(0)
    config = TextConfig()
    for name, value in {"hidden_size": 32, "num_attention_heads": 4, "head_dim": 8}.items():
        setattr(config, name, value)
    config.num_key_value_heads, config.cca_time0, config.cca_time1 = 2, 2, 2
    config.vision_lora = False
    layer = CCA(config, 0)
    hidden = mx.random.normal((2, LONG, 32))
    ends = mx.array([LONG, SHORT])[:, None, None]
    hidden = mx.where(mx.arange(LONG)[None, :, None] < ends, hidden, 0)
    alone = states(layer, hidden[1:, :SHORT], [SHORT])
    beside = states(layer, hidden, [LONG, SHORT])
    print(f"mlx-vlm {version('mlx-vlm')}: states after a row of {SHORT}, padded to {LONG}")
    worst = 0.0
    for name, one, two in zip(("convolutions", "shifted values"), alone, beside, strict=True):
        apart = mx.abs(one[0] - two[1]).max().item()
        worst = max(worst, apart)
        print(f"{name}: {apart:.3g} from the same row alone")
    print("expected: 0 up to rounding")
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
