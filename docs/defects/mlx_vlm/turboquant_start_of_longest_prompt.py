"""TurboQuant with a start takes rows on either side of it for one batch, and cannot hold both.

``_make_cache`` (mlx_vlm/generate/ar.py:928) decides once for a whole prefill batch whether it
quantizes, by the longest prompt: a short prompt is quantized if a long one comes with it and is not
if it comes alone. Two batches decided otherwise are then joined by ``_extend_cache`` (line 858),
which takes a ``BatchKVCache`` and a ``BatchTurboQuantKVCache`` for the same kind and raises. The
server passes ``--quantized-kv-start`` (5000 unless told otherwise) to its generator, so with
``--kv-bits 3.5`` a prompt of 5000 tokens that arrives while a shorter one decodes ends both.
Mended by a start for each row, or by joining caches of both kinds.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models import llama

START, VOCAB = 8, 64
BELOW, ABOVE = list(range(1, 6)), list(range(11, 31))
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def make_model() -> llama.Model:
    mx.random.seed(0)
    model = llama.Model(llama.ModelConfig.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    return model


def decode(model: llama.Model, prompts: list[list[int]], late: list[int] | None = None) -> list:
    """The logprobs of the first prompt's tokens; ``late`` comes after its second token."""
    generator = BatchGenerator(
        model.language_model,
        SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Endless())),
        top_logprobs_k=VOCAB,
        kv_bits=3.5,
        quantized_kv_start=START,
    )

    def insert(prompt: list[int]) -> int:
        embedded = model.get_input_embeddings(mx.array([prompt])).to_dict()
        given = {name: value for name, value in embedded.items() if value is not None}
        (uid,) = generator.insert([prompt], max_tokens=5, prompt_kwargs=[given])
        return uid

    first, *_ = [insert(prompt) for prompt in prompts]
    rows: list[list[float]] = []
    while generator.has_work:
        for response in generator.next()[1]:
            if response.uid == first:
                rows.append([value for _, value in sorted(response.top_logprobs)])
        if late is not None and len(rows) == 2:
            insert(late)
            late = None
    generator.close()
    return rows


def main() -> int:
    model = make_model()
    print(f"mlx-vlm {version('mlx-vlm')}: kv_bits=3.5, quantized_kv_start={START}")
    alone, beside = decode(model, [BELOW]), decode(model, [BELOW, ABOVE])
    apart = max(abs(a - b) for a, b in zip(alone[0], beside[0], strict=True))
    print(f"prompt of {len(BELOW)}, alone and beside one of {len(ABOVE)}: {apart:.3g} nats apart")
    print("expected: 0 up to rounding")
    wrong = apart > 1e-3
    for first, late in ((BELOW, ABOVE), (ABOVE, BELOW)):
        try:
            decode(model, [first], late)
            said = "both decode"
        except (AttributeError, TypeError) as error:
            said, wrong = f"{type(error).__name__}: {error}", True
        print(f"prompt of {len(late)} that joins one of {len(first)}: {said}")
    print("expected: both decode")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
