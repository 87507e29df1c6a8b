"""mlx-lm 0.31.3, which vllm-mlx 0.6.0 asks for: a bounded cache of a batch keeps no first tokens.

mlx_lm/models/cache.py:37 gives a single stream RotatingKVCache(keep=4), mlx_lm/generate.py:1663
and vllm_mlx/scheduler.py:1928 give batches keep=0: past max_kv_size both attend other tokens.
"""

import mlx.core as mx
from mlx_lm.generate import generate_step
from tiny_llama import fresh, greedy, tiny_llama, tokens, verdict

model = tiny_llama()
prompt = tokens(40, seed=1)
alone = generate_step(mx.array(prompt), model, max_tokens=6, max_kv_size=16)
right = [int(token) for token, _ in alone]
verdict("40 tokens in a cache of 16", right, fresh(model, prompt, greedy(6), max_kv_size=16))
