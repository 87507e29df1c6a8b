"""mlx-lm 0.31.3, which vllm-mlx 0.6.0 asks for: its single stream shows processors a prompt's end.

mlx_lm/generate.py:434 feeds the prompt piece by piece; only what comes with the last piece, one
token, is put into what logits processors get. ``BatchGenerator``, which vllm-mlx uses, gives
them all of it.
"""

import mlx.core as mx
from mlx_lm.generate import generate_step
from tiny_llama import tiny_llama, tokens, verdict

seen = []


def processor(history, logits):
    seen.append(int(history.size))
    return logits


list(
    generate_step(
        mx.array(tokens(20, seed=1)), tiny_llama(), max_tokens=1, logits_processors=[processor]
    )
)
verdict("tokens that a logits processor sees at the first step", 20, seen[0])
