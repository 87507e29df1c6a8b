"""``generate_step`` and ``BatchGenerator`` quantize keys and values otherwise, told the same.

The batch (``_make_cache``, mlx_vlm/generate/ar.py:937 and 986) quantizes on the fly, so a prompt
already attends to its own quantized keys; it leaves the last layer out; and for uniform bits it
knows no ``quantized_kv_start``. ``generate_step`` quantizes after each piece of the prompt what was
computed unquantized (ar.py:505), from the start on, and for uniform bits in every layer
(``maybe_quantize_kv_cache``, mlx_vlm/generate/common.py:235); where a layer has a sliding window it
raises (mlx_vlm/models/cache.py:796), while the batch leaves such layers as they are.
So a command-line answer and a server's answer to one request differ by more than rounding.
Mended by one policy for both.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import BatchGenerator, generate_step
from mlx_vlm.models import llama

VOCAB, STEPS = 64, 4
PROMPT = list(range(1, 21))
KINDS = (
    {"kv_bits": None},
    {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0},
    {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0},
    {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 5000},
    {"kv_bits": 3.5, "quantized_kv_start": 0},
)
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
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


def batched(model: llama.Model, options: dict) -> tuple[list[int], list[list[float]]]:
    """The tokens of a batch of one, and the logprobs that they were chosen from."""
    generator = BatchGenerator(
        model.language_model,
        SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Endless())),
        top_logprobs_k=VOCAB,
        **options,
    )
    embedded = model.get_input_embeddings(mx.array([PROMPT])).to_dict()
    given = {name: value for name, value in embedded.items() if value is not None}
    generator.insert([PROMPT], max_tokens=STEPS, prompt_kwargs=[given])
    tokens, rows = [], []
    while generator.has_work:
        for response in generator.next()[1]:
            tokens.append(int(response.token))
            rows.append([value for _, value in sorted(response.top_logprobs)])
    generator.close()
    return tokens, rows


def alone(model: llama.Model, options: dict, tokens: list[int]) -> list[list[float]]:
    """The logprobs of the single stream, which is given the batch's tokens."""
    left = iter(tokens + tokens[-1:])
    ids = mx.array([PROMPT])
    steps = generate_step(
        ids,
        model,
        None,
        None,
        max_tokens=STEPS,
        sampler=lambda _: mx.array([next(left)]),
        **options,
    )
    return [logprobs.tolist() for _, logprobs in steps]


def main() -> int:
    mx.random.seed(0)
    model = llama.Model(llama.ModelConfig.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    print(f"mlx-vlm {version('mlx-vlm')}: generate_step and a batch of one, the same options")
    worst = 0.0
    for options in KINDS:
        tokens, rows = batched(model, options)
        pairs = zip(alone(model, options, tokens), rows, strict=True)
        apart = max(abs(a - b) for one, two in pairs for a, b in zip(one, two, strict=True))
        worst = max(worst, apart if options["kv_bits"] else 0.0)
        print(f"{options}: {apart:.3g} nats apart")
    print("expected: rounding everywhere")
    return 1 if worst > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
