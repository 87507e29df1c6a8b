"""longcat_flash_ngram forgets the prompt's last tokens where the prompt comes as embeddings.

NgramEmbedding (mlx_vlm/models/longcat_flash_ngram/language.py:85) keeps the last ids in the first
cache, but is only called for ids: where the prompt comes as embeddings (line 128), as all prompts
do, the cache stays empty. ``get_input_embeddings`` (longcat_flash_ngram.py:24) fills none either,
as generate_step and BatchGenerator pass it no cache. The first generated tokens are embedded as if
nothing came before them. Mended by keeping the ids in the model's call, whatever the embeddings.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.longcat_flash_ngram import Model, ModelConfig

CONFIG = {
    **{"model_type": "longcat_flash_ngram", "hidden_size": 32, "ffn_hidden_size": 32},
    **{"expert_ffn_hidden_size": 16, "num_layers": 1, "num_hidden_layers": 1, "vocab_size": 64},
    **{"num_attention_heads": 2, "max_position_embeddings": 64, "attention_method": "MLA"},
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
    **{"v_head_dim": 8, "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "moe_topk": 1},
    **{"n_routed_experts": 2, "zero_expert_num": 1, "zero_expert_type": "identity"},
    **{"routed_scaling_factor": 1.0, "norm_topk_prob": False, "router_bias": False},
    **{"rms_norm_eps": 1e-5, "rope_theta": 1000.0, "attention_bias": False},
    **{"ngram_vocab_size_ratio": 2, "emb_neighbor_num": 3, "emb_split_num": 2},
}
PROMPT, NEXT = mx.array([[7, 21, 40, 2, 60, 11]]), mx.array([[38]])


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    language = model.language_model

    def decoded(**given: mx.array) -> mx.array:
        cache = language.make_cache()
        language(PROMPT, cache=cache, **given)
        return language(NEXT, cache=cache).logits

    embeddings = model.get_input_embeddings(PROMPT).inputs_embeds
    apart = mx.abs(decoded(inputs_embeds=embeddings) - decoded()).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, longcat_flash_ngram: logits of the first decoded token")
    print("after the prompt as embeddings, against those after the prompt as ids")
    print(f"expected 0, got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
