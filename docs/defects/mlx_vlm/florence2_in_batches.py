"""florence2: the batch generator cannot decode an encoder-decoder model.

``no_chunked_prefill`` stands on the model (mlx_vlm/models/florence2/florence2.py:130), but the
server gives the generator the language model, which has none: the encoder hears the prompt without
its last token, and the decoder starts twice. A decode step (mlx_vlm/generate/ar.py:1190) hands over
the token only, never the encoder's states; mlx_vlm/models/florence2/language.py:387 takes that for
a new prompt and decodes the token bos_token_id at each step. Rows of several prompts fail before:
the encoder's mask has no axes for heads and queries (mlx_vlm/models/base.py:446). ``generate_step``
hands the states on (ar.py:411) and works. Mended by ``no_chunked_prefill`` on the language model
and ``output.encoder_outputs`` kept for the decode steps.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.models.florence2.config import TextConfig
from mlx_vlm.models.florence2.language import LanguageModel

STEPS = 5
CONFIG = {
    **{"d_model": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
    **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_layers": 1, "decoder_layers": 2},
    **{"vocab_size": 64, "max_position_embeddings": 64},
}
PROMPT = [5, 9, 20, 33, 7]


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def embed(model: LanguageModel) -> dict[str, mx.array]:
    """What the model's ``get_input_embeddings`` gives for a prompt."""
    return {
        "inputs_embeds": model.model.shared(mx.array([PROMPT])),
        "decoder_inputs_embeds": model.model.shared(mx.array([[2]])),
        "attention_mask": mx.ones((1, len(PROMPT))),
    }


def single(model: LanguageModel) -> list[float]:
    """As ``generate_step``: the logprob of token 3, which is chosen at each step."""
    cache = make_prompt_cache(model)
    output = model(mx.array([PROMPT]), cache=cache, **embed(model))
    rows = [output.logits[0, -1]]
    while len(rows) < STEPS:
        output = model(mx.array([[3]]), cache=cache, encoder_outputs=output.encoder_outputs)
        rows.append(output.logits[0, -1])
    return [(row[3] - mx.logsumexp(row)).item() for row in rows]


def batched(model: LanguageModel, rows: int) -> list[float]:
    """The same of the first of equal prompts."""
    criteria = SimpleNamespace(stopping_criteria=Endless())
    generator = BatchGenerator(
        model,
        SimpleNamespace(tokenizer=criteria),
        sampler=lambda logprobs: mx.full(logprobs.shape[:-1], 3, mx.int32),
    )
    given = [embed(model) for _ in range(rows)]
    uids = generator.insert([PROMPT] * rows, max_tokens=STEPS, prompt_kwargs=given)
    found: list[float] = []
    while generator.has_work:
        found += [r.token_logprob for r in generator.next()[1] if r.uid == uids[0]]
    return found


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}, florence2: logprobs of token 3 at each step")
    alone = single(model)
    print("single stream:   ", ", ".join(f"{value:.3f}" for value in alone))
    bad = False
    for rows in (1, 2):
        try:
            got = batched(model, rows)
        except ValueError as error:
            print(f"batch of {rows}: ValueError: {error}")
            bad = True
            continue
        print(f"batch of {rows}:      ", ", ".join(f"{value:.3f}" for value in got))
        bad = bad or max(abs(a - b) for a, b in zip(alone, got, strict=True)) > 1e-3
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
