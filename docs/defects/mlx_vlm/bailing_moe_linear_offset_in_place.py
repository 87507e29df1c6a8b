"""bailing_moe_linear's later layers get positions that an earlier layer has already moved on.

mlx_vlm/models/bailing_moe_linear/language.py:454 takes the attention cache's offset once for all
layers. In a batch that is an array which update_and_fetch increases in place
(mlx_vlm/models/cache.py:1602): linear layers after the first attention layer rotate their queries
and keys one call too far, by the whole prompt in prefill and by one in each decode step, so that
what a prompt leaves in the state stands at wrong distances. No padding is needed. Fixed by a
copy.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.bailing_moe_linear import Model, ModelConfig

CONFIG = {
    **{"model_type": "bailing_moe_linear", "hidden_size": 32, "intermediate_size": 48},
    **{"num_hidden_layers": 4, "vocab_size": 64, "num_attention_heads": 2, "head_dim": 16},
    **{"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1000.0, "n_group": 1},
    **{"max_position_embeddings": 64, "tie_word_embeddings": False, "layer_group_size": 2},
    **{"group_norm_size": 2, "use_qk_norm": True, "partial_rotary_factor": 0.5, "topk_group": 1},
    **{"first_k_dense_replace": 4, "num_experts": 2, "moe_intermediate_size": 16},
    **{"moe_shared_expert_intermediate_size": 16, "num_experts_per_tok": 1, "use_bias": False},
    **{"num_shared_experts": 1, "score_function": "sigmoid", "use_qkv_bias": False},
    **{"moe_router_enable_expert_bias": True, "norm_topk_prob": True},
    "routed_scaling_factor": 1.0,
}
PROMPT, NEXT = [7, 21, 40, 2, 60, 11], [38]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))

    def decoded(rows: int, cache: list) -> mx.array:
        model(mx.array([PROMPT] * rows), cache=cache)
        return model(mx.array([NEXT] * rows), cache=cache).logits[0, -1]

    alone = decoded(1, model.make_cache())
    apart = mx.abs(decoded(2, _make_cache(model, [0, 0])) - alone).max().item()
    print(
        f"mlx-vlm {version('mlx-vlm')}, bailing_moe_linear: two equal prompts and a token, logits"
    )
    print(f"expected 0 from the same alone, got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
