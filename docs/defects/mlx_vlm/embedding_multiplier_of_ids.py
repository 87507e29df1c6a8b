"""granite, granitemoe, minicpm and minicpm3 scale embeddings that are given, but not those of ids.

``embed_tokens(inputs) if inputs_embeds is None else inputs_embeds * multiplier``
(mlx_vlm/models/granite/language.py:113, granitemoe/language.py:148, minicpm/language.py:128,
minicpm3/language.py:165) scales in the second case only. Prompts come as embeddings and are
scaled, the tokens that are generated come as ids and are not: every answer goes wrong after its
first token. Mended by scaling both, as the models were trained.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import mlx.core as mx

COMMON = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
    **{"rope_theta": 1000.0, "max_position_embeddings": 64, "tie_word_embeddings": True},
}
GRANITE = {
    **{"attention_multiplier": 0.25, "embedding_multiplier": 12.0, "logits_scaling": 8.0},
    **{"residual_multiplier": 0.25, "attention_bias": False, "mlp_bias": False},
}
MINICPM = {"dim_model_base": 32, "scale_depth": 1.4, "scale_emb": 12.0}
LATENT = {
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8},
    "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 64},
}
CONFIGS = {
    "granite": GRANITE,
    "granitemoe": {**GRANITE, "num_local_experts": 2, "num_experts_per_tok": 1},
    "minicpm": MINICPM,
    "minicpm3": {**MINICPM, **LATENT},
}
IDS = mx.array([[7, 21, 40, 2, 60, 11]])


def apart(name: str) -> float:
    """How far the logits of token ids are from those of the same tokens' embeddings."""
    mx.random.seed(0)
    package = import_module(f"mlx_vlm.models.{name}")
    config = package.ModelConfig.from_dict({"model_type": name, **COMMON, **CONFIGS[name]})
    model = package.Model(config).language_model
    given = model(IDS, inputs_embeds=model.model.embed_tokens(IDS)).logits
    return mx.abs(model(IDS).logits - given).max().item()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: logits of ids against those of the ids' embeddings")
    found = {name: apart(name) for name in CONFIGS}
    for name, worst in found.items():
        print(f"{name}: expected 0, got {worst:.3g}")
    return 1 if max(found.values()) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
