"""nemotron_parse: the batch generator cannot decode an encoder-decoder model.

A decode step (mlx_vlm/generate/ar.py:1195) hands over the token and rope deltas only, never the
encoder's states, and mlx_vlm/models/nemotron_parse/language.py:253 raises at the second token of
any request. Rows of several prompts fail before: their decoder's caches are made for batches, the
mask for one row (mlx_vlm/models/base.py:446). ``generate_step`` hands the states on
(ar.py:411) and works. Mended by keeping ``output.encoder_outputs`` for the decode steps.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.nemotron_parse.config import TextConfig
from mlx_vlm.models.nemotron_parse.language import LanguageModel

CONFIG = {
    **{"d_model": 32, "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "decoder_layers": 2},
    **{"vocab_size": 64, "max_position_embeddings": 64},
}


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def decode(model: LanguageModel, prompts: list[list[int]]) -> str:
    criteria = SimpleNamespace(stopping_criteria=Endless())
    generator = BatchGenerator(model, SimpleNamespace(tokenizer=criteria))
    given = {
        "inputs_embeds": mx.random.normal((1, 4, 32)),
        "decoder_inputs_embeds": model.model.shared(mx.array([[2]])),
    }
    generator.insert(prompts, max_tokens=3, prompt_kwargs=[dict(given) for _ in prompts])
    tokens = 0
    try:
        while generator.has_work:
            tokens += len(generator.next()[1])
    except ValueError as error:
        return f"{tokens} tokens, then ValueError: {error}"
    return f"{tokens} tokens"


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}, nemotron_parse, 3 tokens for each prompt")
    one, two = decode(model, [[5, 6, 7, 8]]), decode(model, [[5, 6, 7, 8], [9, 8, 7, 6]])
    print(f"one prompt, expected 3 tokens: {one}\ntwo prompts, expected 6 tokens: {two}")
    return 0 if (one, two) == ("3 tokens", "6 tokens") else 1


if __name__ == "__main__":
    sys.exit(main())
