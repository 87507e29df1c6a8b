"""``BatchGenerator.insert`` takes lists that do not fit its prompts, and loses requests.

mlx_vlm/generate/ar.py:2962 zips prompts, max_tokens and prompt_kwargs without comparing their
lengths (only logits_processors and thinking_budget_criteria are compared): the prompts beyond the
shortest list are dropped without a word. Embeddings that are not as many as their prompt's tokens
are taken too; the prefill that they come to fails, with all that are in it. Mended by a ValueError.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models import llama

CONFIG = {
    **{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48},
    **{"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2},
    "rms_norm_eps": 1e-5,
}


def answered(model: llama.Model, embedded: list[int], **options: object) -> str:
    """What becomes of two prompts of 3 and 2 tokens."""
    processor = SimpleNamespace(stopping_criteria=type("C", (), {
        "add_eos_token_ids": lambda *_: None, "__call__": lambda *_: False})())  # fmt: skip
    generator = BatchGenerator(model.language_model, processor)
    kwargs = [{"inputs_embeds": mx.zeros((1, n, 32))} for n in embedded]
    try:
        uids = generator.insert([[5, 9, 33], [7, 8]], prompt_kwargs=kwargs, **options)
    except ValueError as error:
        return f"refused: {error}"
    try:
        tokens = sum(len(generator.next()[1]) for _ in range(12))
    except ValueError as error:
        return f"{len(uids)} uids, then next() fails for both: {str(error)[:60]}"
    return f"{len(uids)} uids, {tokens} tokens"


def main() -> int:
    model = llama.Model(llama.ModelConfig.from_dict(CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}: two prompts, 2 tokens each; expected: refused")
    found = {
        "one max_tokens": answered(model, [3, 2], max_tokens=[2]),
        "one prompt_kwargs": answered(model, [3], max_tokens=2),
        "7 embeddings for 2 tokens": answered(model, [3, 7], max_tokens=2),
    }
    for name, said in found.items():
        print(f"{name}: {said}")
    return 0 if all(said.startswith("refused") for said in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
