"""mllama: what an image is to a request is lost after its prompt, and its tiles in a batch.

1. mlx_vlm/generate/ar.py:1190-1196: a decode step of the batch generator hands over no
   ``cross_attention_states``, and no cache holds their keys (nothing in
   mlx_vlm/models/mllama/language.py:60-91 fills one): from the second token on there is no image,
   and cross attention falls back to the query's own heads.
2. mlx_vlm/generate/ar.py:847 concatenates states and masks over the rows that have any: masks of
   prompts of other lengths end the batch, and the states of some rows are split over all
   (``reshape(bsz, -1, ...)``, language.py:63), which ends it or gives each row a part of them.
3. mlx_vlm/generate/ar.py:411-412: generate_step hands the states on, not their mask: all tokens but
   the first see the padding, which an image of one tile is followed by for three more.
Mended by caches that hold the image's keys, values and mask for each row, as transformers has.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate import ar
from mlx_vlm.models.base import InputEmbeddingsFeatures
from mlx_vlm.models.cache import KVCache
from mlx_vlm.models.mllama.config import TextConfig
from mlx_vlm.models.mllama.language import LanguageModel

VOCAB, PLACES, SHOWN = 64, 20, 5  # places of an image with its tiles of padding, and those it fills
CONFIG = {
    **{"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "cross_attention_layers": [1]},
}
PROMPT, OTHER = [5, 6, 7, 8], [11, 12, 13, 14, 15, 16]


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def embed(model: LanguageModel, prompt: list[int], *, image: bool = True) -> dict[str, mx.array]:
    """What get_input_embeddings gives for a prompt, with an image of one tile."""
    given = {"inputs_embeds": model.model.embed_tokens(mx.array([prompt]))}
    if image:
        hidden = mx.arange(PLACES) >= SHOWN
        mask = mx.broadcast_to(mx.where(hidden, -1e9, 0.0), (1, 1, len(prompt), PLACES))
        given["cross_attention_states"] = mx.random.normal((1, PLACES, 64), key=mx.random.key(1))
        given["cross_attention_mask"] = mask
        given["full_text_row_masked_out_mask"] = mx.ones((1, 1, len(prompt), 1))
    return given


def logprobs(logits: mx.array) -> mx.array:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def expected(model: LanguageModel, token: int) -> mx.array:
    """The second token's logprobs, by one pass over the prompt and the first."""
    tokens = [*PROMPT, token]
    return logprobs(model(mx.array([tokens]), **embed(model, tokens)).logits[0, -1])


def single(model: LanguageModel) -> tuple[int, mx.array]:
    """The first token and the second one's logprobs of generate_step."""
    whole = SimpleNamespace(
        language_model=model,
        config=SimpleNamespace(),
        get_input_embeddings=lambda *_, **__: InputEmbeddingsFeatures(**embed(model, PROMPT)),
    )
    cache = [KVCache() for _ in model.layers]
    ids = mx.array([PROMPT])
    made = ar.generate_step(ids, whole, None, None, max_tokens=2, prompt_cache=cache)
    (token, _), (_, second) = made
    return int(token), second


def batched(model: LanguageModel) -> tuple[int, mx.array]:
    """The same of a batch generator with this one request."""
    tokenizer = SimpleNamespace(stopping_criteria=Endless())
    generator = ar.BatchGenerator(model, SimpleNamespace(tokenizer=tokenizer), top_logprobs_k=VOCAB)
    generator.insert([PROMPT], max_tokens=2, prompt_kwargs=[embed(model, PROMPT)])
    found = []
    while generator.has_work:
        found += generator.next()[1]
    generator.close()
    return found[0].token, mx.array([value for _, value in sorted(found[1].top_logprobs)])


def together(model: LanguageModel, *, image: bool) -> str:
    """What becomes of the prompt with an image beside another one, with an image or without."""
    tokenizer = SimpleNamespace(stopping_criteria=Endless())
    generator = ar.BatchGenerator(model, SimpleNamespace(tokenizer=tokenizer))
    rows = [
        embed(model, PROMPT),
        embed(model, OTHER, image=image),
        embed(model, OTHER, image=image),
    ]
    generator.insert([PROMPT, OTHER, OTHER], max_tokens=2, prompt_kwargs=rows)
    try:
        while generator.has_work:
            generator.next()
    except ValueError as error:
        return f"ValueError: {error}"
    return "no error"


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.layers[1].cross_attn_attn_gate = model.layers[1].cross_attn_mlp_gate = mx.ones(1)
    print(f"mlx-vlm {version('mlx-vlm')}, mllama: second token after an image")
    wrong = 0
    for name, (token, second) in (("batch", batched(model)), ("single", single(model))):
        apart = mx.abs(second - expected(model, token)).max().item()
        wrong += apart > 1e-3
        print(f"{name}, expected 0 from one pass over all tokens: {apart:.3g} nats apart")
    for name, image in (("two longer prompts with an image", True), ("two of text", False)):
        found = together(model, image=image)
        wrong += found != "no error"
        print(f"beside {name}, expected no error: {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
