"""gemma4_text: quantized keys that layers share fail in attention.

mlx_lm/models/gemma4_text.py:549 gives the layers that share another layer's keys and values no
cache. scaled_dot_product_attention recognizes quantized keys by the cache's ``bits``, so there the
tuples of codes, scales and biases go to mx.fast.scaled_dot_product_attention, which raises
TypeError.
Fixed by handing the owner's cache on with its keys.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models import gemma4_text

CONFIG = {
    "model_type": "gemma4_text",
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "hidden_size": 64,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["full_attention"] * 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    **{"head_dim": 64, "global_head_dim": 64},
    **{"sliding_window": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5},
}


def decode(model, **options) -> str:
    try:
        steps = generate_step(mx.array([7, 21, 40, 2]), model, max_tokens=4, **options)
        return f"tokens {[int(token) for token, _ in steps]}"
    except TypeError as error:
        return f"TypeError: {str(error).splitlines()[0]}"


def main() -> int:
    mx.random.seed(0)
    model = gemma4_text.Model(gemma4_text.ModelArgs.from_dict(CONFIG))
    got = decode(model, kv_bits=8, quantized_kv_start=0)
    print(f"mlx-lm {version('mlx-lm')}, gemma4_text, generate_step of 4 tokens")
    print(f"plain:     {decode(model)}")
    print(f"kv_bits=8: {got}")
    print("expected: tokens both times")
    return 1 if got.startswith("TypeError") else 0


if __name__ == "__main__":
    sys.exit(main())
