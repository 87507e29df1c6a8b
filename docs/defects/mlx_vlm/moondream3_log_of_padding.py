"""moondream3 takes the logarithm of negative positions: every row that is padded is NaN.

In a left-padded batch the cache's offsets begin below zero, so the positions of padding are
negative. mlx_vlm/models/moondream3/language.py:28 takes ``log(positions + 1)`` of them, and the
temperature scales the values with it: NaN. The mask gives such keys the weight 0, and 0 times NaN
is NaN, in every token of the row. Mended by raising the positions to 0 first.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, make_prompt_cache
from mlx_vlm.models.moondream3.config import TextConfig
from mlx_vlm.models.moondream3.language import LanguageModel

CONFIG = TextConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    vocab_size=64,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=16,
    rope_dim=8,
    num_experts=2,
    num_experts_per_tok=1,
    moe_intermediate_size=16,
    moe_start_layer=1,
)
SHORT, LONG = [1, 2, 3], [4, 5, 6, 7, 8, 9]


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(CONFIG)
    for block in model.layers:
        block.attn.tau.alpha = mx.random.normal((2,))
    alone = model(mx.array([SHORT]), cache=make_prompt_cache(model)).logits[0, -1]
    padding = len(LONG) - len(SHORT)
    rows = mx.array([[0] * padding + SHORT, LONG])
    cache = [BatchKVCache([padding, 0]) for _ in model.layers]
    beside = model(rows, cache=cache).logits[0, -1]
    worst = mx.abs(beside - alone).max().item()
    missing = int(mx.isnan(beside).sum().item())
    print(f"mlx-vlm {version('mlx-vlm')}, moondream3: a row of {len(SHORT)} beside {len(LONG)}")
    print(f"expected: the logits that it has alone; got {missing} NaN of {beside.size}")
    return 0 if worst < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
