"""minimax_m3: two ways in which rows of a batch get wrong positions.

mlx_vlm/models/minimax_m3_vl/language.py:2108 and 1971 raise negative offsets to 0: where a
prefill piece begins within a row's left padding, its tokens in that piece come too late. Fixed by
leaving them negative. And line 2080 counts from 0 while the model knows no rope deltas, as after
prompts that were prefilled alone: the first decode step of rows that were joined then has
position 0. Fixed by asking for the offset of the cache instead.
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
    model, short, padding = make(), TOKENS[:5], 7
    alone = model(mx.array([short]), cache=model.make_cache()).logits[0, -1]
    rows = mx.array([TOKENS[: padding + 5], [0] * padding + short])
    model = make()
    cache = caches(model, [0, padding])
    for start in range(0, rows.shape[1], 4):
        pieces = model(rows[:, start : start + 4], cache=cache).logits[1, -1]
    late = mx.abs(pieces - alone).max().item()

    model = make()
    one = [model.make_cache() for _ in range(2)]
    for cache, prompt in zip(one, (short, TOKENS[:9]), strict=True):
        model(mx.array([prompt]), cache=cache)
    joined = [type(a).merge([a, b]) for a, b in zip(*one, strict=True)]
    zero = mx.zeros((2, 1), mx.int32)
    both = model(mx.array([[8], [9]]), cache=joined, rope_deltas=zero).logits[0, -1]
    next_token = model(mx.array([[8]]), cache=one[0]).logits[0, -1]
    again = mx.abs(both - next_token).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, minimax_m3, logits against a row alone (expected 0):")
    print(f"{padding} columns of padding, prefilled in pieces of 4: {late:.3g} apart")
    print(f"two rows prefilled alone, then joined, one decode step: {again:.3g} apart")
    return 1 if max(late, again) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
