"""qwen4_exp computes padding: of a row that is left alone, and of a piece of one column.

Its recurrent state, hyper-connections and n-grams know nothing of padding:
mlx_vlm/models/qwen4_exp/language.py:1626 prefills the rows of a batch one by one, each without its
padding, but only where there are two or more. A padded row whose longer neighbours were cancelled
while they were prefilled goes through with its padding. Fixed by asking for a batch cache, not for
two rows. And mlx_vlm/models/qwen3_5/language.py:1815 takes a piece of one column, such as the first
of prompts of one and of two tokens, for a decode step, whose n-grams know nothing of padding.
Fixed by prefilling such a piece as any other.
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


def build() -> LanguageModel:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG, indexer_budget=64))

    def noisy(w: mx.array) -> mx.array:
        return w if w.dtype != mx.float32 else w + 0.2 * mx.random.normal(w.shape)

    model.update(tree_map(noisy, model.parameters()))
    return model


def main() -> int:
    model = build()

    def short(rows: list[list[int]], padding: list[int], width: int = 64) -> mx.array:
        """Logits of the last token of the last row, prefilled in pieces of that width."""
        cache = ar._make_cache(model, padding)
        delta = mx.zeros((len(rows), 1), mx.int32)
        real = mx.cumsum(mx.arange(len(rows[0])) >= mx.array(padding)[:, None], axis=1)
        positions = mx.stack([mx.maximum(real - 1, 0)] * 3)
        for start in range(0, len(rows[0]), width):
            piece = slice(start, start + width)
            given = {"position_ids": positions[..., piece], "rope_deltas": delta}
            logits = model(mx.array(rows)[:, piece], cache=cache, **given).logits
        return logits[-1, -1]

    want, padded = short([SHORT], [0]), [0] * PAD + SHORT
    beside = mx.abs(short([LONG, padded], [0, PAD]) - want).max().item()
    alone = mx.abs(short([padded], [PAD]) - want).max().item()
    first = short([[7, 8], [0, 50]], [0, 1], width=1)
    column = mx.abs(first - short([[50]], [0])).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, qwen4_exp: prefill of 5 tokens behind {PAD} of padding")
    print(f"against them without padding: expected 0; beside a longer row {beside:.3g}")
    print(f"in a batch of its own {alone:.3g}")
    print(f"prefill of one token beside two, in pieces of one: expected 0, got {column:.3g}")
    return 1 if max(alone, column) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
