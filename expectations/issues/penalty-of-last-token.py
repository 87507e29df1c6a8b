import sys

import mlx.core as mx
from mlx_vlm.generate import generate_step
from mlx_vlm.models.llama import Model, ModelConfig

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 64}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
PROMPT = [5, 9, 33, 7, 21, 40, 2, 17]
model = Model(ModelConfig.from_dict({"model_type": "llama", **SIZES, **HEADS}))
seen = []


def processor(tokens, logits):
    seen.append(tokens.tolist())
    return logits


next(
    generate_step(
        mx.array([PROMPT]), model, None, None, max_tokens=1, logits_processors=[processor]
    )
)
print("prompt:", PROMPT)
print("a logits processor gets, at the first token:", seen[0])
sys.exit(seen[0] != PROMPT)
