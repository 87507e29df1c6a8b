"""``BatchGenerator`` lets nobody in where fewer rows may decode than are prefilled together.

mlx_vlm/generate/ar.py:3119 waits until slots for a whole prefill batch are free: with
completion_batch_size below prefill_batch_size, 8 by default, that never comes, and ``next()``
answers for ever with no prompt and no token. Nor are all slots ever used where there are more: with
the defaults, 32 and 8, a request beside 25 rows at work waits until one of them ends. Fixed by
taking as many as there is room for, as mlx-lm does (mlx_lm/generate.py:1832).
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


def tokens(model: llama.Model, slots: int, prefill: int) -> int:
    """How many tokens come out for two prompts of 3 tokens that ask for 2 each."""
    processor = SimpleNamespace(stopping_criteria=Never())
    sizes = {"completion_batch_size": slots, "prefill_batch_size": prefill}
    generator = BatchGenerator(model.language_model, processor, **sizes)
    kwargs = [{"inputs_embeds": mx.zeros((1, 3, 128))} for _ in range(2)]
    generator.insert([[5, 9, 33], [7, 8, 2]], max_tokens=2, prompt_kwargs=kwargs)
    return sum(len(generator.next()[1]) for _ in range(CALLS))


def main() -> int:
    model = llama.Model(llama.ModelConfig.from_dict(CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}: 2 requests of 2 tokens, {CALLS} calls of next()")
    found = {}
    for slots, prefill in ((2, 2), (1, 1), (2, 8), (1, 2)):
        found[slots, prefill] = tokens(model, slots, prefill)
        print(f"{slots} slots, {prefill} prefilled together: expected 4 tokens, ", end="")
        print(f"got {found[slots, prefill]}")
    return 0 if set(found.values()) == {4} else 1


if __name__ == "__main__":
    sys.exit(main())
