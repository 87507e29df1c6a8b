"""longcat_flash_ngram: prompts of one and of two tokens cannot share a batch.

mlx_lm/models/longcat_flash_ngram.py:117-120 keeps as many ids as it has seen, up to n - 1. Caches
of prompts shorter than that have contexts of other widths, and ``ArraysCache.extend`` raises when a
BatchGenerator joins them. The exception ends all requests of the batch. Mended by starting from a
context of n - 1 zeros, which is what ``_shift_right`` puts before the first token anyway.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import longcat_flash_ngram

CONFIG = {
    "model_type": "longcat_flash_ngram",
    **{"hidden_size": 36, "ffn_hidden_size": 48, "expert_ffn_hidden_size": 16, "num_layers": 1},
    **{"moe_topk": 2, "n_routed_experts": 4, "zero_expert_num": 1, "vocab_size": 64},
    **{"max_position_embeddings": 64, "num_attention_heads": 2, "kv_lora_rank": 8},
    **{"q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    **{"routed_scaling_factor": 1.0, "rms_norm_eps": 1e-5, "rope_theta": 1000.0},
    **{"mla_scale_q_lora": True, "mla_scale_kv_lora": True},
    **{"ngram_vocab_size_ratio": 2, "emb_neighbor_num": 4, "emb_split_num": 2},
}


def main() -> int:
    mx.random.seed(0)
    model = longcat_flash_ngram.Model(longcat_flash_ngram.ModelArgs.from_dict(CONFIG))
    prompts = [[5], [7, 21, 40, 2, 60]]
    generator = BatchGenerator(model, max_tokens=4)
    produced = dict.fromkeys(generator.insert(prompts), 0)
    print(f"mlx-lm {version('mlx-lm')}, longcat_flash_ngram: prompts of 1 and of 5 tokens")
    print("expected: [4, 4] tokens")
    try:
        for _ in range(12):
            for response in generator.next()[1]:
                produced[response.uid] += 1
    except ValueError as error:
        print(f"got: {list(produced.values())} tokens, then ValueError: {error}")
        return 1 if "concatenate" in str(error) else 2
    print(f"got: {list(produced.values())} tokens")
    return 0 if set(produced.values()) == {4} else 2


if __name__ == "__main__":
    sys.exit(main())
