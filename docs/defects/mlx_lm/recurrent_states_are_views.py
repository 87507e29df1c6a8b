"""What a recurrent layer keeps of a piece of a prompt holds the inputs of the whole piece.

The last columns of a convolution's inputs are a slice, as in mlx_lm/models/mamba2.py:122, and a
slice is a view: its buffer stays as large as all inputs. A server that keeps the caches at the end
of a prompt's piece holds many times what it counts. Fixed by a copy: mx.contiguous makes one where
the buffer is larger by more than 16384 bytes, as in qwen3_next since 0.31.2.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models import mamba2
from mlx_lm.models.cache import make_prompt_cache

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


def main() -> int:
    mx.random.seed(0)
    model = mamba2.Model(mamba2.ModelArgs.from_dict(CONFIG))
    mx.eval(model.parameters())
    cache = make_prompt_cache(model)
    model(mx.arange(1024)[None] % 64, cache=cache)
    mx.eval([entry.state for entry in cache])
    counted = sum(entry.nbytes for entry in cache)
    before = mx.get_active_memory()
    cache.clear()
    held = before - mx.get_active_memory()
    print(f"mlx-lm {version('mlx-lm')}, mamba2, the cache after a piece of 1024 tokens")
    print(f"bytes that it counts: {counted}; bytes that go free with it: {held}")
    print("expected: about the same")
    return 1 if held > 2 * counted else 0


if __name__ == "__main__":
    sys.exit(main())
