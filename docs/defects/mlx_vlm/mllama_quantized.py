"""mllama: with quantized keys and values every request fails at its cross attention.

mlx_vlm/models/mllama/language.py:84-91 hands its cache to ``scaled_dot_product_attention``, which
goes by the cache's kind (mlx_vlm/models/base.py:436), but never puts anything into it: plain keys
go to kernels for quantized ones, and TurboQuant's codes are asked for where there are none. Nothing
refuses kv_bits for the model. Mended by handing on the cache only where it holds the keys, and by
a state of empty quantized caches (mlx_vlm/models/cache.py:381), for which generate_step asks.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.mllama.config import TextConfig
from mlx_vlm.models.mllama.language import LanguageModel

CONFIG = {
    **{"vocab_size": 64, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "cross_attention_layers": [1]},
}


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def decode(model: LanguageModel, **options: object) -> str:
    tokenizer = SimpleNamespace(stopping_criteria=Endless())
    generator = BatchGenerator(model, SimpleNamespace(tokenizer=tokenizer), **options)
    prompt = [5, 6, 7, 8]
    given = {"inputs_embeds": model.model.embed_tokens(mx.array([prompt]))}
    generator.insert([prompt], max_tokens=3, prompt_kwargs=[given])
    tokens = 0
    try:
        while generator.has_work:
            tokens += len(generator.next()[1])
    except (AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    return f"{tokens} tokens"


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}, mllama, 3 tokens for a prompt of text")
    failed = 0
    for options in (
        {},
        {"kv_bits": 8, "kv_group_size": 32},
        {"kv_bits": 3.5, "kv_quant_scheme": "turboquant", "quantized_kv_start": 0},
    ):
        found = decode(model, **options)
        failed += found != "3 tokens"
        print(f"{options or 'not quantized'}: {found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
