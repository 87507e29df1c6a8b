"""A bounded cache keeps the first four tokens alone, but not in a batch.

``make_prompt_cache(model, max_kv_size)`` gives ``RotatingKVCache(max_size, keep=4)``
(mlx_lm/models/cache.py:37). ``BatchRotatingKVCache.merge`` (line 1411) never reads ``keep``, and
the batch cache evicts from position 0. ``BatchGenerator`` merges even one request, so with the
same bound it answers otherwise than ``generate_step`` for all models without ``make_cache``.
Mended by a batch cache that honours ``keep``, or by one value of ``keep`` for both.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models import qwen2
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

BOUND, STEPS = 8, 8
CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}


def alone(model: qwen2.Model, prompt: list[int], cache: list) -> list[mx.array]:
    steps = generate_step(mx.array(prompt), model, max_tokens=STEPS, prompt_cache=cache)
    return [logprobs for _, logprobs in steps]


def main() -> int:
    mx.random.seed(0)
    model = qwen2.Model(qwen2.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    prompt = [5, 9, 33, 21, 40]

    single = alone(model, prompt, make_prompt_cache(model, max_kv_size=BOUND))
    no_keep = alone(model, prompt, [RotatingKVCache(BOUND) for _ in model.layers])
    generator = BatchGenerator(model, max_kv_size=BOUND)
    generator.insert([prompt], max_tokens=[STEPS])
    batched = []
    while responses := generator.next_generated():
        batched += [r.logprobs for r in responses]
    generator.close()

    def apart(one: list[mx.array]) -> list[float]:
        return [round(mx.abs(a - b).max().item(), 5) for a, b in zip(one, batched, strict=True)]

    print(f"mlx-lm {version('mlx-lm')}: a batch of one request, max_kv_size={BOUND}, by token")
    print(f"logprobs apart from generate_step:         {apart(single)} nats")
    print(f"logprobs apart from RotatingKVCache keep=0: {apart(no_keep)} nats")
    print("expected: the first row zero up to rounding, the second row not")
    return 1 if max(apart(single)) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
