"""``BatchGenerator`` accepts sizes with which nothing can ever go on, and unknown schemes.

mlx_vlm/generate/ar.py:2568-2570 checks nothing. With sizes of 0 line 3124 takes no request, ever;
with a negative prefill_batch_size a slice without the last ones, so that the last one fails; with
a negative prefill_step_size line 2140 never gets any further. A kv_quant_scheme that does not exist
is taken for "uniform" (line 2540). Mended by a ValueError.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models import llama

CALLS = 200
CONFIG = {
    **{"model_type": "llama", "vocab_size": 64, "hidden_size": 128, "intermediate_size": 48},
    **{"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2},
    "rms_norm_eps": 1e-5,
}


class Never:
    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def tried(model: llama.Model, options: dict[str, object]) -> str:
    """What becomes of a prompt of 3 tokens that asks for 2."""
    try:
        processor = SimpleNamespace(stopping_criteria=Never())
        generator = BatchGenerator(model.language_model, processor, **options)
    except ValueError as error:
        return f"refused: {error}"
    kwargs = [{"inputs_embeds": mx.zeros((1, 3, 128))}]
    generator.insert([[5, 9, 33]], max_tokens=2, prompt_kwargs=kwargs)
    try:
        return f"{sum(len(generator.next()[1]) for _ in range(CALLS))} tokens"
    except Exception as error:
        return f"next() raises {type(error).__name__}: {error}"


def main() -> int:
    model = llama.Model(llama.ModelConfig.from_dict(CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}: {CALLS} calls of next(); expected: refused")
    wrong = [
        {"completion_batch_size": 0, "prefill_batch_size": 0},
        {"prefill_batch_size": -1},
        {"prefill_step_size": -1},
        {"kv_bits": 8, "kv_group_size": 32, "kv_quant_scheme": "no such scheme"},
    ]
    found = [tried(model, options) for options in wrong]
    for options, said in zip(wrong, found, strict=True):
        print(f"{options}: {said}")
    return 0 if all(said.startswith("refused") for said in found) else 1


if __name__ == "__main__":
    sys.exit(main())
