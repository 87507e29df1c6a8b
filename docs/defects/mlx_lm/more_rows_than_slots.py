"""BatchGenerator decodes more rows than completion_batch_size.

mlx_lm/generate.py:1833 lets in as many prompts as there are slots beside the rows that decode. It
does not count the prompts that are still in prefill, which will need slots, too. Fixed by
subtracting both.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.llama import Model, ModelArgs

CONFIG = {
    **{"model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "vocab_size": 64},
    **{"num_hidden_layers": 1, "num_attention_heads": 2, "rms_norm_eps": 1e-6},
}
SLOTS = 4


def main() -> int:
    mx.random.seed(0)
    generator = BatchGenerator(
        Model(ModelArgs(**CONFIG)),
        completion_batch_size=SLOTS,
        prefill_batch_size=SLOTS,
        prefill_step_size=2,
    )
    generator.insert([[1], [2], [3], [4, 5, 6]], max_tokens=[20] * 4)
    generator.next()  # three rows decode, the fourth prompt has a token left
    generator.insert([[7]], max_tokens=[20])
    most = max(len(generator.next()[1]) for _ in range(10))
    print(f"mlx-lm {version('mlx-lm')}, completion_batch_size={SLOTS}, five requests:")
    print(f"rows that decode in one step: expected at most {SLOTS}, got {most}")
    return 1 if most > SLOTS else 0


if __name__ == "__main__":
    sys.exit(main())
