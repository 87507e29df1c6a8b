"""A short prompt beside a long one is computed as far as the long one reaches.

mlx_vlm/generate/ar.py:1805 pads all prompts that are taken together to the longest, and each piece
is computed for all rows: 100 tokens beside 10,000 take 20,000 positions. mlx-lm's generator drops a
row once its prompt is done, and takes 12,000. Fixed by that, or by taking prompts of about one
length together.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate import BatchGenerator
from mlx_vlm.models.mamba2 import Model, ModelConfig

LENGTHS = (50, 1000)
PIECE = 200
CONFIG = {
    "model_type": "mamba2",
    "num_heads": 4,
    "head_dim": 16,
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "state_size": 16,
    "num_hidden_layers": 2,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "n_groups": 1,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
    "time_step_limit": (0.0, float("inf")),
    "time_step_rank": "auto",
}


class Criteria:
    def add_eos_token_ids(self, *_):
        pass

    def __call__(self, token):
        return False


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG))
    language, shapes = model.language_model, []
    base = type(language)

    class Counted(base):
        def __call__(self, inputs, *args, **kwargs):
            shapes.append(inputs.shape)
            return super().__call__(inputs, *args, **kwargs)

    language.__class__ = Counted
    processor = SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Criteria()))
    generator = BatchGenerator(language, processor, prefill_step_size=PIECE)
    for length in LENGTHS:
        ids = [(7 * n) % 60 for n in range(length)]
        made = model.get_input_embeddings(mx.array([ids]), None).to_dict()
        made = {name: value for name, value in made.items() if value is not None}
        generator.insert([ids], max_tokens=2, prompt_kwargs=[made])
    while generator.has_work:
        generator.next()
    taken = sum(rows * columns for rows, columns, *_ in shapes)
    needed = sum(LENGTHS) + PIECE
    print(f"mlx-vlm {version('mlx-vlm')}, prompts of {LENGTHS} tokens, in pieces of {PIECE}")
    print(f"positions computed: {taken}; with rows dropped once they are done: about {needed}")
    return 1 if taken > 1.25 * needed else 0


if __name__ == "__main__":
    sys.exit(main())
