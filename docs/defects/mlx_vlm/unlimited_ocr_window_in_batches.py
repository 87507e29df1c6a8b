"""unlimited_ocr: beside another row, generated tokens see all tokens before them.

A row alone keeps ``RingSlidingKVCache`` (mlx_vlm/models/unlimited_ocr/language.py:13): the prompt
and the last ``sliding_window_size`` generated tokens. It has no ``to_batch`` of its own, so that
the batch generator takes it for the ``KVCache`` that it derives from (mlx_vlm/generate/ar.py:954)
and makes a ``BatchKVCache`` without a window. Mended by a ring cache for batches.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.unlimited_ocr.config import TextConfig
from mlx_vlm.models.unlimited_ocr.language import LanguageModel

WINDOW, STEPS = 4, 9
CONFIG = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "n_routed_experts": None},
    **{"sliding_window_size": WINDOW, "sliding_window": WINDOW},
}
PROMPT = [5, 9, 2, 33, 7]


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def decode(model: LanguageModel, rows: int) -> list[float]:
    """The logprob of token 1, which is chosen at each step, in the first of equal rows."""
    criteria = SimpleNamespace(stopping_criteria=Endless())
    generator = BatchGenerator(
        model,
        SimpleNamespace(tokenizer=criteria),
        sampler=lambda logprobs: mx.ones(logprobs.shape[:-1], mx.int32),
    )
    given = {"inputs_embeds": model.model.embed_tokens(mx.array([PROMPT]))}
    uids = generator.insert([PROMPT] * rows, max_tokens=STEPS, prompt_kwargs=[given] * rows)
    steps = []
    while generator.has_work:
        steps += [r.token_logprob for r in generator.next()[1] if r.uid == uids[0]]
    return steps


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        for layer in model.layers:
            layer.self_attn[name].weight *= 4
    alone, batched = decode(model, 1), decode(model, 2)
    print(f"mlx-vlm {version('mlx-vlm')}, unlimited_ocr, a window of {WINDOW} generated tokens")
    print("a row beside its equal, expected as alone; nats between them at each step:")
    apart = [abs(a - b) for a, b in zip(alone, batched, strict=True)]
    print("  " + ", ".join(f"{nats:.2g}" for nats in apart))
    return 1 if max(apart) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
