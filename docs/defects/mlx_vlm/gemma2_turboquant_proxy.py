"""gemma2 fails where keys and values are kept by TurboQuant.

dequantize_kv_state (mlx_vlm/models/base.py:243) takes what has a ``shape`` for an array. What
TurboQuant caches give is a proxy (mlx_vlm/turboquant.py:5053) that has one and is none, so it is
not dequantized, and mx.expand_dims (mlx_vlm/models/gemma2/language.py:73) raises. Nothing refuses
the model: each request fails on a server that was started with --kv-bits 3.5. Mended by asking for
mx.array alone.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models.gemma2 import Model, ModelConfig

CONFIG = {
    **{"model_type": "gemma2", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 48},
    **{"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    **{"rms_norm_eps": 1e-5, "rope_theta": 1000.0, "max_position_embeddings": 64},
    **{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "query_pre_attn_scalar": 32,
}
PROMPT = mx.array([[7, 21, 40, 2]])


def main() -> int:
    model = Model(ModelConfig.from_dict(CONFIG))
    failed = False
    print(f"mlx-vlm {version('mlx-vlm')}, gemma2: {PROMPT.size} tokens, 2 tokens out")
    for bits in (None, 3.5):
        options = {"kv_bits": bits, "quantized_kv_start": 0}
        try:
            count = len(list(generate_step(PROMPT, model, None, None, max_tokens=2, **options)))
            said = f"{count} tokens"
        except TypeError as error:
            said, failed = f"TypeError: {str(error).splitlines()[0]}", True
        print(f"kv_bits={bits}: expected 2 tokens, got {said}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
