"""deepseek_v4 without a cache attends to pooled keys of the future.

The mask of pooled keys is the pool cache's (mlx_vlm/models/deepseek_v4/language.py:980, and line
731 for the indexer); without a cache there is none, and every token attends to all pooled keys,
also those that hold later tokens. Training and perplexity are hit, generation always has a cache.
Fixed by the same mask from the positions alone.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.deepseek_v4.config import ModelConfig
from mlx_vlm.models.deepseek_v4.language import SparseCompressedAttention

CONFIG = {
    **{"model_type": "deepseek_v4", "hidden_size": 32, "qk_rope_head_dim": 8, "head_dim": 16},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "q_lora_rank": 16, "o_groups": 1},
    **{"o_lora_rank": 8, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8},
    **{"num_hidden_layers": 1, "compress_ratios": [4], "sliding_window": 8},
}
LENGTH = 8


def main() -> int:
    mx.random.seed(0)
    attention = SparseCompressedAttention(ModelConfig.from_dict(CONFIG), 0)
    attention.update(
        tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), attention.parameters())
    )
    x = mx.random.normal((1, LENGTH, 32))
    other = mx.concatenate([x[:, :-1], mx.random.normal((1, 1, 32))], axis=1)
    mask = mx.tril(mx.ones((LENGTH, LENGTH))).astype(mx.bool_)
    moved = mx.abs(attention(x, mask) - attention(other, mask))[:, :-1].max().item()
    print(
        f"mlx-vlm {version('mlx-vlm')}, deepseek_v4 without a cache: another last token moves the"
    )
    print(f"outputs of the tokens before it by: expected 0, got {moved:.3g}")
    return 1 if moved > 1e-4 else 0


if __name__ == "__main__":
    sys.exit(main())
