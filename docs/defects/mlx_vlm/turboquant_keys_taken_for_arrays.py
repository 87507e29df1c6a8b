"""Models that work on keys and values themselves fail with TurboQuant, alone and in a batch.

``TurboQuantKVCache.update_and_fetch`` gives a state, not an array. ``kv_bits=3.5`` is taken for
every model, and the server checks nothing when it starts, so each request fails:
- deepseek_v3 (mlx_vlm/models/deepseek_v3/language.py:120) and kimi_linear transpose the latents;
- limite (limite/language.py:184) and inkling (inkling/language.py:161) look at their shape;
- iquestloopcoder (iquestloopcoder/language.py:106), moondream2, moondream3, phi3_v, phi4_siglip and
  phi4mm attend without the cache;
- deepseek_v32 (deepseek_v32/language.py:65) and hy_v4 (hy_v4/indexer.py:41) keep no values in the
  cache of their indexer, and the codec cannot quantize none.
Mended by refusing these models, or by leaving such caches as they are.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models import deepseek_v3

CONFIG = {
    "model_type": "deepseek_v3",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1,
}


def main() -> int:
    model = deepseek_v3.Model(deepseek_v3.ModelConfig.from_dict(CONFIG))
    failed = False
    print(f"mlx-vlm {version('mlx-vlm')}: deepseek_v3, a prompt of 6 tokens, 2 tokens out")
    for bits in (None, 3.5):
        options = {"kv_bits": bits, "quantized_kv_start": 0}
        try:
            ids = mx.array([[1, 2, 3, 4, 5, 6]])
            count = len(list(generate_step(ids, model, None, None, max_tokens=2, **options)))
            said = f"{count} tokens"
        except (AttributeError, TypeError, ValueError) as error:
            said, failed = f"{type(error).__name__}: {error}", True
        print(f"kv_bits={bits}: {said}")
    print("expected: 2 tokens, or a refusal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
