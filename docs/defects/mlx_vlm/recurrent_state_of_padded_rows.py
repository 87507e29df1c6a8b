"""Recurrent layers that run over a row's padding as if it were its first tokens.

Prompts of a prefill batch are padded on the left (on the right where prefixes are reused,
mlx_vlm/generate/ar.py:2738), and ArraysCache.make_mask says where; these models do not look at it:
baichuan_m1/language.py:95 (its convolution's first token follows padding), bailing_moe_linear
(language.py:268 gets no mask), jamba (language.py:235 drops it), mamba (language.py:96),
recurrent_gemma (language.py:179, and the first token is left unscaled in column 0, line 128) and
rwkv7 (language.py:304 and 337), all under mlx_vlm/models. A short prompt is answered as if token 0
stood before it, many times. Mended by the mask: nothing goes in, and the state stays as it is.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import _make_cache

COMMON = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
    **{"rope_theta": 1000.0, "max_position_embeddings": 64, "tie_word_embeddings": False},
}
CONFIGS = {
    "baichuan_m1": {
        **{"sliding_window": 32, "sliding_window_layers": [1], "conv_window": 2},
        **{"num_swa_attention_heads": 2, "num_swa_key_value_heads": 2},
    },
    "bailing_moe_linear": {
        **{"head_dim": 16, "layer_group_size": 2, "group_norm_size": 2, "use_qk_norm": True},
        **{"partial_rotary_factor": 0.5, "first_k_dense_replace": 2, "num_experts": 2},
        **{"moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 16, "n_group": 1},
        **{"num_experts_per_tok": 1, "num_shared_experts": 1, "topk_group": 1, "use_bias": False},
        **{"score_function": "sigmoid", "moe_router_enable_expert_bias": True},
        **{"norm_topk_prob": True, "routed_scaling_factor": 1.0, "use_qkv_bias": False},
    },
    "jamba": {
        **{"attn_layer_offset": 1, "attn_layer_period": 2, "num_experts": 1},
        **{"expert_layer_offset": 1, "expert_layer_period": 2, "num_experts_per_tok": 1},
        **{"mamba_d_conv": 4, "mamba_d_state": 8, "mamba_expand": 2, "mamba_dt_rank": "auto"},
        **{"mamba_conv_bias": True, "mamba_proj_bias": False},
    },
    "mamba": {
        **{"state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True},
        **{"time_step_rank": 4, "intermediate_size": 64},
    },
    "recurrent_gemma": {
        **{"block_types": ["recurrent", "attention"], "num_key_value_heads": 1},
        **{"attention_bias": False, "conv1d_width": 4, "attention_window_size": 32},
        **{"logits_soft_cap": 30.0, "embeddings_scale_by_sqrt_dim": True},
    },
    "rwkv7": {
        **{"norm_eps": 1e-5, "head_dim": 16, "a_low_rank_dim": 8, "v_low_rank_dim": 8},
        **{"gate_low_rank_dim": 8, "decay_low_rank_dim": 8},
    },
}
PROMPT = [7, 21, 40, 2, 60, 11]


def apart(name: str) -> float:
    """How far the last logits of a padded row are from those of the row alone."""
    mx.random.seed(0)
    package = import_module(f"mlx_vlm.models.{name}")
    config = package.ModelConfig.from_dict({"model_type": name, **COMMON, **CONFIGS[name]})
    model = package.Model(config).language_model
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    alone = model(mx.array([PROMPT]), cache=model.make_cache()).logits[0, -1]
    padding = len(PROMPT)
    rows = mx.array([PROMPT * 2, [0] * padding + PROMPT])
    got = model(rows, cache=_make_cache(model, [0, padding])).logits[1, -1]
    return mx.abs(got - alone).max().item()


def main() -> int:
    print(
        f"mlx-vlm {version('mlx-vlm')}: {len(PROMPT)} tokens beside {2 * len(PROMPT)}, last logits"
    )
    found = {name: apart(name) for name in CONFIGS}
    for name, worst in found.items():
        print(f"{name}: expected 0 from the same prompt alone, got {worst:.3g}")
    return 1 if max(found.values()) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
