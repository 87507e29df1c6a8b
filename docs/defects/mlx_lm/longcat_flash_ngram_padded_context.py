"""longcat_flash_ngram: after a padded prefill the id context of a row is its padding.

mlx_lm/models/longcat_flash_ngram.py:120 keeps the last columns of the batch as the context of the
n-gram embedding. BatchGenerator pads prompts on the right while it prefills them, so a shorter row
keeps pad ids, and the next token's n-grams are hashed from these. Mended by taking the ids that
end at ``cache.lengths`` of each row and calling ``cache.advance``, as qwen3_next does for its
convolution.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import longcat_flash_ngram
from mlx_lm.models.cache import ArraysCache

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
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    embed = model.model.ngram_embeddings

    short, long, follow = [5, 9, 33, 17], [7, 21, 40, 2, 60, 11, 38], 23
    cache = ArraysCache(size=1)
    embed(mx.array([short]), cache)
    alone = embed(mx.array([[follow]]), cache)[0, 0]
    context_alone = cache[0][0].tolist()

    cache, padding = ArraysCache(size=1), len(long) - len(short)
    cache.prepare(lengths=[len(short), len(long)], right_padding=[padding, 0])
    embed(mx.array([short + [0] * padding, long]), cache)
    cache.finalize()
    together = embed(mx.array([[follow], [follow]]), cache)[0, 0]

    worst = mx.abs(together - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, longcat_flash_ngram: prompt {short}, then token {follow}")
    print(f"context alone {context_alone}, beside a longer prompt {cache[0][0].tolist()}")
    print(f"embedding of the token: expected equal, got up to {worst:.3g} apart")
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
