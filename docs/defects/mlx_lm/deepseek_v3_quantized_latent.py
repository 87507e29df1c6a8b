"""deepseek_v3: a quantized cache fails in attention.

mlx_lm/models/deepseek_v3.py:146 multiplies the queries with the rotary keys as update_and_fetch
gave them. Of a QuantizedKVCache that is a tuple of codes, scales and biases, so
``generate_step(kv_bits=8)`` raises with the second piece of a prompt, or with the first token. The
other models that cache the latent (deepseek_v32, glm4_moe_lite, kimi_linear, longcat_flash,
mistral4) have the same line. Fixed by mx.dequantize there, or by a cache that refuses to be
quantized.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models import deepseek_v3

CONFIG = {
    "model_type": "deepseek_v3",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": 32,
    **{"kv_lora_rank": 64, "qk_rope_head_dim": 64, "qk_nope_head_dim": 32, "v_head_dim": 32},
    **{"n_routed_experts": None, "first_k_dense_replace": 2},
    **{"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1000.0},
}


def decode(model, **options) -> str:
    try:
        steps = generate_step(mx.array([7, 21, 40, 2]), model, max_tokens=4, **options)
        return f"tokens {[int(token) for token, _ in steps]}"
    except AttributeError as error:
        return f"AttributeError: {error}"


def main() -> int:
    mx.random.seed(0)
    model = deepseek_v3.Model(deepseek_v3.ModelArgs.from_dict(CONFIG))
    got = decode(model, kv_bits=8, quantized_kv_start=0)
    print(f"mlx-lm {version('mlx-lm')}, deepseek_v3, generate_step of 4 tokens")
    print(f"plain:     {decode(model)}")
    print(f"kv_bits=8: {got}")
    print("expected: tokens, or a refusal that says that this model's cache can't be quantized")
    return 1 if got.startswith("AttributeError") else 0


if __name__ == "__main__":
    sys.exit(main())
