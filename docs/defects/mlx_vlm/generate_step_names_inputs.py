"""``generate_step`` cannot prefill models that do not call their token ids ``inputs``.

mlx_vlm/generate/ar.py:496 passes each piece of a prompt as ``inputs=``; phi, phixtral, qwen and
stablelm call the parameter ``x``, recurrent_gemma ``tokens``, zaya1_vl ``input_ids``. Prompts of
more than one token are always cut, so every prompt fails. BatchGenerator passes the ids by position
and works. Mended by passing them by position in ``generate_step`` too.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models import stablelm

CONFIG = {
    "model_type": "stablelm",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rope_theta": 10000.0,
    "use_qkv_bias": False,
    "partial_rotary_factor": 0.5,
    "layer_norm_eps": 1e-5,
}


def main() -> int:
    model = stablelm.Model(stablelm.ModelConfig.from_dict(CONFIG))
    failed = False
    print(f"mlx-vlm {version('mlx-vlm')}: stablelm, two tokens out")
    for length in (1, 2):
        ids = mx.array([list(range(1, length + 1))])
        try:
            count = len(list(generate_step(ids, model, None, None, max_tokens=2)))
            said = f"{count} tokens"
        except TypeError as error:
            said, failed = f"TypeError: {error}", True
        print(f"prompt of {length}: {said}")
    print("expected: 2 tokens for each")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
