"""Prompts in prefill take no slot, so more rows decode than completion_batch_size allows.

Prompts are let in by the slots that decoding rows leave (mlx_lm/generate.py:1831). Rows that are
still in prefill will need them, too. The server's --decode-concurrency is exceeded.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import llama

SLOTS = 4
CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}


def main() -> int:
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    sizes = {"prefill_batch_size": 2, "prefill_step_size": 8}
    generator = BatchGenerator(model, completion_batch_size=SLOTS, max_tokens=30, **sizes)
    # Three rows decode; the prompts of two more, let in one after the other, end at once.
    generator.insert([[1, 2], [3, 4, 5], [6, 7], [8] * 40, [9] * 20])
    most = 0
    for _ in range(20):
        generator.next()
        most = max(most, len(generator._generation_batch))
    print(f"mlx-lm {version('mlx-lm')}, llama, completion_batch_size {SLOTS}")
    print(f"rows that decode at once, expected at most {SLOTS}: {most}")
    return 1 if most > SLOTS else 0


if __name__ == "__main__":
    sys.exit(main())
