"""Models that take a cache's offset for one number, which in a batch it is not.

BatchKVCache.offset is an array with a position for each row. These raise as soon as there are two:
gpt_bigcode makes a numpy range of it (mlx_vlm/models/gpt_bigcode/language.py:126), limite an
mx.arange (limite/language.py:276; its mask, line 177, would leave out the padding as well), and
internlm2 and internlm3 ask whether it is beyond a limit (internlm2/language.py:38,
internlm3/language.py:38). Mended by positions of each row.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import _make_cache

LLAMA = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
    **{"rope_theta": 1000.0, "max_position_embeddings": 64, "tie_word_embeddings": False},
}
LIMITE = {
    **{"head_dim": 16, "mlp_type": "swiglu", "attention_softmax_scale": 0.25, "ve_dim": 8},
    **{"attn_gate_channels": 8, "attn_gate_scale": 2.0, "ve_gate_channels": 8, "ve_layers": [0]},
    **{"ve_gate_scale": 2.0, "ve_stored_heads": 2, "xsa": False, "xsa_layers": [], "mudd": False},
    **{"global_layers": [1], "global_nope": True, "global_window": -1, "sliding_window": 8},
    **{"rope_base_local": 1000.0, "rope_n_pairs": 4, "mudd_layers": [], "mudd_tap_idx": {}},
    "softcap_logits": {"kind": "sigmoid", "a": 20.0, "b": 0.0, "c": 4.0},
}
CONFIGS = {
    "gpt_bigcode": {
        **{"n_embd": 32, "n_inner": 48, "n_layer": 2, "n_head": 2, "n_positions": 64},
        **{"vocab_size": 64, "layer_norm_epsilon": 1e-5, "multi_query": True},
    },
    "internlm2": {**LLAMA, "bias": False},
    "internlm3": {**LLAMA, "bias": False, "qkv_bias": False},
    "limite": {**LLAMA, **LIMITE},
}
PROMPT = [7, 21, 40, 2]


def said(name: str, rows: int) -> str:
    """What comes of equal prompts without padding."""
    package = import_module(f"mlx_vlm.models.{name}")
    config = package.ModelConfig.from_dict({"model_type": name, **CONFIGS[name]})
    model = package.Model(config).language_model
    cache = model.make_cache() if rows == 1 else _make_cache(model, [0] * rows)
    try:
        mx.eval(model(mx.array([PROMPT] * rows), cache=cache).logits)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "logits"


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: a prompt alone, and two equal ones in a batch")
    failed = False
    for name in CONFIGS:
        alone, both = said(name, 1), said(name, 2)
        print(f"{name}: alone {alone}; two: expected logits, got {both}")
        failed = failed or both != "logits"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
