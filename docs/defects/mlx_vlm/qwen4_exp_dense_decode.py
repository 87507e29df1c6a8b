"""qwen4_exp: in decode steps of left-padded rows attention is not sparse.

The batch's mask is then the word "left_padded_decode". With it mlx_vlm/models/qwen4_exp/
language.py:1112 hands the step to qwen3_5's attention, without the blocks that the indexer has
chosen, and :1874 adds them to masks that are None, "causal" or an array only. So rows beyond
indexer_budget attend to all tokens, in decode and only beside a shorter row. Fixed by a mask of
the padding, joined with the blocks.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate import ar
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
    **{"output_gate_type": "sigmoid", "mtp_num_hidden_layers": 0},
    "rope_parameters": {
        **{"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]},
        **{"rope_theta": 1000.0, "partial_rotary_factor": 0.5},
    },
}
LONG, SHORT = list(range(5, 28)), [50, 29, 14, 8, 33]
PAD = len(LONG) - len(SHORT)


def apart(budget: int) -> float:
    """How far a decode step of the long row is from the same step alone."""
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG, indexer_budget=budget))

    def noisy(w: mx.array) -> mx.array:
        exact = w.dtype != mx.float32
        return w if exact else w + 0.2 * mx.random.normal(w.shape)

    model.update(tree_map(noisy, model.parameters()))

    def step(rows: list[list[int]], padding: list[int]) -> mx.array:
        cache = ar._make_cache(model, padding)
        delta = mx.zeros((len(rows), 1), mx.int32)
        real = mx.cumsum(mx.arange(len(LONG)) >= mx.array(padding)[:, None], axis=1)
        positions = mx.stack([mx.maximum(real - 1, 0)] * 3)
        model(mx.array(rows), cache=cache, position_ids=positions, rope_deltas=delta)
        return model(mx.array([[7]] * len(rows)), cache=cache, rope_deltas=delta).logits[0, -1]

    beside = step([LONG, [0] * PAD + SHORT], [0, PAD])
    return mx.abs(beside - step([LONG], [0])).max().item()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, qwen4_exp, 23 tokens and a decode step, beside 5 tokens")
    within, beyond = apart(64), apart(8)
    print(f"against alone: expected 0; with a budget of 64 tokens {within:.3g}, of 8 {beyond:.3g}")
    return 1 if beyond > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
