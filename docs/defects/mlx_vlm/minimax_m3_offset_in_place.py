"""minimax_m3: in a batch without padding, index keys of decode are rotated one position too far.

mlx_vlm/models/minimax_m3_vl/language.py:1451 keeps ``cache.offset``, in a batch cache an array
that update_and_fetch increases in place, and hands it to the indexer afterwards (line 1497): index
queries and keys of a decode step get the position of the next token, other blocks are kept.
Fixed by a copy, ``rope_offset = offset + 0``.
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
    model, length = make(), 12
    one, two = model.make_cache(), caches(model, [0, 0])
    prompt = mx.array([TOKENS[:length]])
    model(prompt, cache=one)
    model(mx.concatenate([prompt, prompt]), cache=two)
    worst = 0.0
    print(f"mlx-vlm {version('mlx-vlm')}, minimax_m3: two equal rows against one, decode steps")
    for token in TOKENS[length:]:
        alone = model(mx.array([[token]]), cache=one).logits
        rows = model(mx.array([[token], [token]]), cache=two).logits
        apart = mx.abs(rows - alone).max().item()
        keys = [cache[0].index_keys[:1, :, cache[0].index_offset - 1] for cache in (one, two)]
        print(f"logits {apart:.3g} apart, index keys {mx.abs(keys[0] - keys[1]).max().item():.3g}")
        worst = max(worst, apart)
    print("expected: 0 in each step")
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
