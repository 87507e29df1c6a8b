"""qwen4_exp's n-grams and their convolution go on from padding, where rows reuse prefixes.

Rows that reuse prefixes are padded behind (mlx_vlm/generate/ar.py:2738), and caches know the rows'
lengths. mlx_vlm/models/qwen4_exp/language.py:1407 and :1482 take their states from the end of a
piece without them; qwen3_5's convolution takes them. And mlx_vlm/models/cache.py:1297 puts a row
without a prefix together with those that have one: its n-gram context becomes zeros, while alone
it begins with eos_token_id (language.py:1398). Fixed by the lengths, and by a context of ends.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import ArraysCache
from mlx_vlm.models.qwen4_exp.config import TextConfig
from mlx_vlm.models.qwen4_exp.language import LanguageModel

CONFIG = {
    **{"model_type": "qwen4_exp_text", "hidden_size": 32, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64},
    **{"max_position_embeddings": 256, "rms_norm_eps": 1e-6, "linear_num_value_heads": 2},
    **{"linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
    **{"linear_conv_kernel_dim": 4, "full_attention_interval": 2, "num_experts": 2},
    **{"num_experts_per_tok": 1, "moe_intermediate_size": 16, "norm_topk_prob": True},
    **{"shared_expert_intermediate_size": 16, "tie_word_embeddings": False, "seed": 1},
    **{"layer_types": ["linear_attention", "qwen_sparse_attention"], "eos_token_id": 1},
    **{"hc_count": 2, "hc_lowrank": 8, "ple_layer_ids": [1], "ple_embed_dim": 32},
    **{"ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 2, "hidden_act": "silu"},
    **{"ngram_vocab_size_base": 32, "make_ngram_vocab_size_divisible_by": 8},
    **{"split_ngram_parts": 2, "indexer_n_heads": 4, "indexer_kv_heads": 1},
    **{"indexer_head_dim": 16, "indexer_compress_ratio": 2, "attention_bias": False},
    **{"output_gate_type": "sigmoid", "mtp_num_hidden_layers": 0, "indexer_budget": 64},
    "rope_parameters": {
        **{"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]},
        **{"rope_theta": 1000.0, "partial_rotary_factor": 0.5},
    },
}


def main() -> int:
    model = LanguageModel(TextConfig(**CONFIG))
    n_grams = next(layer.ple.ple_embedding for layer in model.model.layers if "ple" in layer)
    print(f"mlx-vlm {version('mlx-vlm')}, qwen4_exp, contexts of n-grams")

    cache = ArraysCache(size=4)
    cache.prepare(lengths=[5, 2], right_padding=[0, 3])
    n_grams(mx.array([[5, 6, 7, 8, 9], [11, 12, 0, 0, 0]]), cache)
    ended = cache[3].tolist()
    print(f"after rows of 5 and 2 tokens: expected [[8, 9], [11, 12]], got {ended}")

    warm = ArraysCache(size=4)
    n_grams(mx.array([[5, 6, 7]]), warm)
    merged = ArraysCache.merge([warm, ArraysCache(size=4)])[3].tolist()
    print(f"a new row beside one with a prefix: expected [[6, 7], [1, 1]], got {merged}")
    return 1 if (ended, merged) != ([[8, 9], [11, 12]], [[6, 7], [1, 1]]) else 0


if __name__ == "__main__":
    sys.exit(main())
