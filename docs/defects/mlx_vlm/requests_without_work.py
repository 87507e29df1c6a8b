"""``BatchGenerator.insert`` takes requests that ask for nothing, and answers them all the same.

mlx_vlm/generate/ar.py:2945 reads ``max_tokens=0`` as "not given"; in a list 0 and negative numbers
are taken and give a token (line 1456 asks only after the token whether that was enough). A prompt
without tokens (line 2962) is padded and answered from what stands in the padding. Mended by a
ValueError for both. mlx_vlm's server asks for no lower limit of max_tokens either.
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


class Never:
    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def answered(model: llama.Model, prompts: list[list[int]], max_tokens: object) -> str:
    generator = BatchGenerator(model.language_model, SimpleNamespace(stopping_criteria=Never()))
    kwargs = [{"inputs_embeds": mx.zeros((1, len(p), 32))} for p in prompts]
    try:
        uids = generator.insert(prompts, max_tokens=max_tokens, prompt_kwargs=kwargs)
    except ValueError as error:
        return f"refused: {error}"
    last = [r.uid for _ in range(400) for r in generator.next()[1]].count(uids[-1])
    return f"accepted, {last} tokens"


def main() -> int:
    model = llama.Model(llama.ModelConfig.from_dict(CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}: BatchGenerator.insert; expected: refused, or no token")
    found = {
        "max_tokens=0": answered(model, [[7, 8]], 0),
        "max_tokens=[0]": answered(model, [[7, 8]], [0]),
        "max_tokens=[-1]": answered(model, [[7, 8]], [-1]),
        "prompt of no tokens beside one of 3": answered(model, [[5, 9, 33], []], [2, 2]),
    }
    for name, said in found.items():
        print(f"{name}: {said}")
    return 1 if any(s.startswith("accepted") and " 0 " not in s for s in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
