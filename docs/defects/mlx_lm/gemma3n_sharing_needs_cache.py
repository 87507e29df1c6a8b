"""gemma3n: without a cache, KV-shared layers do not share.

mlx_lm/models/gemma3n.py:131 takes the keys and values of the layer that owns them only
``if ... cache is not None``. Without a cache (mlx_lm.lora, mlx_lm.perplexity: they call
``model(tokens)``) a shared layer computes its own from weights that generation never uses: another
model is trained and measured than decodes. Known upstream as issue 1674. Mended by handing the
owner's keys and values on, as gemma4_text and afm7 do.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import gemma3n
from mlx_lm.models.cache import make_prompt_cache

TEXT_CONFIG = {
    "model_type": "gemma3n_text",
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "hidden_size": 32,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": [48] * 4,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    **{"rope_theta": 1000.0, "rope_local_base_freq": 500.0, "rope_scaling": None},
    "activation_sparsity_pattern": [0.0] * 4,
    **{"altup_num_inputs": 2, "altup_active_idx": 0, "altup_coef_clip": 120.0},
    **{"altup_correct_scale": True, "laurel_rank": 4},
    "final_logit_softcapping": 30.0,
}


def main() -> int:
    mx.random.seed(0)
    args = {"model_type": "gemma3n", "text_config": TEXT_CONFIG}
    model = gemma3n.Model(gemma3n.ModelArgs.from_dict(args))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    tokens = mx.array([[7, 21, 40, 2, 60]])
    cached = model(tokens, cache=make_prompt_cache(model))
    plain = model(tokens)
    worst = mx.abs(cached - plain).max().item()
    first = [[round(x, 3) for x in logits[0, -1, :4].tolist()] for logits in (cached, plain)]
    print(f"mlx-lm {version('mlx-lm')}, gemma3n: last logits of {tokens.size} tokens")
    print(f"with a fresh cache: {first[0]} ...")
    print(f"without a cache:    {first[1]} ...")
    print(f"expected: equal up to rounding; got: up to {worst:.3g} apart")
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
