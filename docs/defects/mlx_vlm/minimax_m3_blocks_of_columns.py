"""minimax_m3: left padding moves the borders of the sparse attention's key blocks.

mlx_vlm/models/minimax_m3_vl/language.py:1463 adds a row's left padding to its query positions, and
lines 1665, 1667 and 1739 cut blocks over the columns of the batch: unless the padding is a
multiple of the block size, a row's blocks hold other tokens than alone, and other keys are kept.
Mended by cutting blocks over columns minus left padding.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.minimax_m3_vl.config import TextConfig
from mlx_vlm.models.minimax_m3_vl.language import LanguageModel

CONFIG = {
    **{"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rotary_dim": 4},
    **{"dense_intermediate_size": 32, "rope_theta": 1000.0, "moe_layer_freq": [0, 0]},
    "sparse_attention_config": {
        **{"use_sparse_attention": True, "sparse_num_index_heads": 2, "sparse_index_dim": 8},
        **{"sparse_block_size": 4, "sparse_topk_blocks": 2, "sparse_local_block": 1},
        "sparse_attention_freq": [1, 1],
    },
}
TOKENS = [7, 21, 40, 2, 60, 11, 38, 5, 9, 33, 17, 4, 50, 29, 14, 8]


def make() -> LanguageModel:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    return model


def caches(model: LanguageModel, padding: list[int]) -> list:
    return [cache.to_batch(padding) for cache in model.make_cache()]


def main() -> int:
    model, prompt = make(), TOKENS[:12]
    alone = model(mx.array([prompt]), cache=model.make_cache()).logits[0, -1]
    worst = 0.0
    print(f"mlx-vlm {version('mlx-vlm')}, minimax_m3, blocks of 4 keys: 12 tokens beside a longer")
    for padding in (0, 3, 4):
        model = make()
        rows = mx.array([[3] * padding + prompt, [0] * padding + prompt])
        logits = model(rows, cache=caches(model, [0, padding])).logits[1, -1]
        apart = mx.abs(logits - alone).max().item()
        print(f"{padding} columns of left padding: logits {apart:.3g} apart from alone, expected 0")
        worst = max(worst, apart)
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
