"""minimax_m3: in a prefill of several rows, sparse layers attend to the future.

mlx_vlm/models/minimax_m3_vl/language.py:1494 merges the causal mask into the padding mask only
where there are no query positions, and with several rows there always are. The block mask brings
causality along, but up to sparse_block_size * sparse_topk_blocks keys (2048 in released models)
the indexer gives none (line 1592). Fixed by ``causal=True``.
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
        **{"sparse_block_size": 4, "sparse_topk_blocks": 16, "sparse_local_block": 1},
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
    model, prompt = make(), TOKENS[:8]
    alone = model(mx.array([prompt]), cache=model.make_cache()).logits[0]
    model = make()
    rows = model(mx.array([prompt, prompt]), cache=caches(model, [0, 0])).logits[0]
    model = make()
    changed = mx.array([[*prompt[:-1], 63]] * 2)
    other = model(changed, cache=caches(model, [0, 0])).logits[0]
    apart = mx.abs(rows - alone).max(axis=-1)
    moved = mx.abs(rows - other).max(axis=-1)[:-1]
    print(f"mlx-vlm {version('mlx-vlm')}, minimax_m3: {len(prompt)} tokens, twice in one batch")
    print("logits against one row alone, by position:", [round(x, 3) for x in apart.tolist()])
    print("what another last token moves before it:", [round(x, 3) for x in moved.tolist()])
    print("expected: 0 everywhere")
    return 1 if max(apart.max().item(), moved.max().item()) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
