"""BatchGenerator.remove and extract_cache accept uids that were never given out.

mlx_lm/generate.py:1713: ``_find_uids`` leaves out what it does not find, and ``remove`` (line 1744)
does not compare. A caller with a wrong uid is not told; with ``return_prompt_caches=True`` that uid
is just not in the answer. May be deliberate, since it makes removal after the end harmless; then a
uid that has ended could be accepted, and one that was never given out be refused (KeyError).
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import qwen2

NEVER_GIVEN = 1_000_003
CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}


def main() -> int:
    mx.random.seed(0)
    generator = BatchGenerator(qwen2.Model(qwen2.ModelArgs.from_dict(CONFIG)))
    given = generator.insert([[5, 9, 33]], max_tokens=[2])
    print(f"mlx-lm {version('mlx-lm')}: uids given out: {given}")
    accepted = False
    for caches in (False, True):
        call = f"remove([{NEVER_GIVEN}], return_prompt_caches={caches})"
        try:
            answer = generator.remove([NEVER_GIVEN], return_prompt_caches=caches)
            print(f"{call}: expected KeyError or ValueError, got {answer!r}")
            accepted = True
        except (KeyError, ValueError) as error:
            print(f"{call}: refused: {error!r}")
    generator.close()
    return 1 if accepted else 0


if __name__ == "__main__":
    sys.exit(main())
