"""Batches of recurrent models build a graph that grows with every token.

Prompts that are not padded leave ``left_padding`` of an ArraysCache at zeros, and
mlx_lm/models/cache.py:685 takes one from it in each step. The mask is made of the first layer's
alone, so nobody computes the others: the graph of all steps stays, and memory grows until the rows
end. Fixed by dropping a padding of zeros, as finalize() does, or by computing it with the states.
"""

import io
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import mamba2

CONFIG = {
    "model_type": "mamba2",
    "num_heads": 4,
    "head_dim": 16,
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "state_size": 16,
    "num_hidden_layers": 2,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "n_groups": 1,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
    "time_step_limit": (0.0, float("inf")),
    "time_step_rank": "auto",
}


def edges(cache) -> int:
    text = io.StringIO()
    mx.export_to_dot(text, cache.left_padding)
    return text.getvalue().count("->")


def main() -> int:
    mx.random.seed(0)
    generator = BatchGenerator(mamba2.Model(mamba2.ModelArgs.from_dict(CONFIG)), stop_tokens=[])
    generator.insert([[7, 21, 40]], max_tokens=[120])
    seen = []
    for step in range(101):
        generator.next()
        cache = generator._generation_batch.prompt_cache
        if step % 25 == 0 and cache and cache[-1].left_padding is not None:
            seen.append(edges(cache[-1]))
    print(f"mlx-lm {version('mlx-lm')}, mamba2, one row; the graph behind the last layer's padding")
    print(f"edges after every 25 tokens: {seen or 'there is no padding'}")
    print("expected: the same each time")
    return 1 if len(seen) > 1 and seen[-1] > seen[0] else 0


if __name__ == "__main__":
    sys.exit(main())
