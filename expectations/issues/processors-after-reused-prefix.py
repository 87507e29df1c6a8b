import sys
from unittest.mock import MagicMock

import mlx.core as mx
from mlx_vlm.apc import APCManager
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.llama import Model, ModelConfig

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 64}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
PROMPT = [5, 9, 33, 7, 21, 40, 2, 17, 51, 12]
model = Model(ModelConfig.from_dict({"model_type": "llama", **SIZES, **HEADS}))
stand_in = MagicMock()
stand_in.tokenizer.stopping_criteria.return_value = False
kept = APCManager(num_blocks=16, block_size=4)
generator = BatchGenerator(model.language_model, stand_in, apc_manager=kept)
embedded = model.get_input_embeddings(mx.array([PROMPT]), None).to_dict()
given = {name: value for name, value in embedded.items() if value is not None}


def first_seen():
    seen = []  # what a logits processor gets, call by call
    processors = [lambda tokens, logits: (seen.append(tokens.tolist()), logits)[1]]
    generator.insert([PROMPT], max_tokens=1, prompt_kwargs=[given], logits_processors=[processors])
    while generator.has_work:
        generator.next()
    return seen[0]


once, again = first_seen(), first_seen()
print("a logits processor gets, at the first token:", once)
print("for the same prompt once more, whose prefix is reused:", again)
sys.exit(once != again)
