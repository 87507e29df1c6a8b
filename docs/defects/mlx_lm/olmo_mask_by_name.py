"""olmo: no prompt of two tokens can be decoded.

mlx_lm/models/olmo.py:93 adds the mask to the scores. Since create_attention_mask gives the name
"causal", or an array of bools, the first fails and the second adds 1 where a key is seen. Fixed by
mx.fast.scaled_dot_product_attention with mask=mask, as in the other models. The module ends the
process where the package ai2-olmo is missing, of which it uses nothing: an empty one stands for it.
"""

import sys
from importlib.metadata import version
from types import ModuleType

sys.modules.setdefault("hf_olmo", ModuleType("hf_olmo"))

import mlx.core as mx  # noqa: E402
from mlx_lm.generate import generate_step  # noqa: E402
from mlx_lm.models import olmo  # noqa: E402

CONFIG = {
    "model_type": "olmo",
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "mlp_hidden_size": 128,
    "vocab_size": 64,
    "embedding_size": 64,
}


def decode(model, prompt) -> str:
    try:
        return f"tokens {[int(token) for token, _ in generate_step(prompt, model, max_tokens=4)]}"
    except ValueError as error:
        return f"ValueError: {error}"


def main() -> int:
    mx.random.seed(0)
    model = olmo.Model(olmo.ModelArgs.from_dict(CONFIG))
    got = decode(model, mx.array([7, 21, 40]))
    print(f"mlx-lm {version('mlx-lm')}, olmo, generate_step of 4 tokens")
    print(f"a prompt of one token:    {decode(model, mx.array([7]))}")
    print(f"a prompt of three tokens: {got}")
    print("expected: tokens")
    return 1 if got.startswith("ValueError") else 0


if __name__ == "__main__":
    sys.exit(main())
