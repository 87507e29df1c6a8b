"""afm7: layers that reuse keys and values rotate their queries by the padded position.

mlx_lm/models/afm7.py:255 takes S - L, the number of cache columns before these tokens, as the rope
offset of the queries. In a batch it counts each row's left padding; the keys were rotated by
``cache.offset`` (line 207), which does not. So every row with padding attends at wrong distances.
Mended by taking ``cache[-1].offset`` before the layers run and handing it to the reuse layers.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import afm7
from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

CONFIG = {
    "model_type": "afm7",
    "vocab_size": 64,
    "hidden_dim": 32,
    "num_layers": 4,
    "num_kv_reuse_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "hidden_dim_scale_factor": 2.0,
    "rope_theta": 1000.0,
}


def main() -> int:
    mx.random.seed(0)
    model = afm7.Model(afm7.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))

    short, long = [5, 9, 33], [7, 21, 40, 2, 60, 11, 38]
    alone = model(mx.array([short]), cache=make_prompt_cache(model))[0, -1]

    padding = len(long) - len(short)
    batch = mx.array([[0] * padding + short, long])
    caches = [BatchKVCache([padding, 0]) for _ in make_prompt_cache(model)]
    together = model(batch, cache=caches)[0, -1]

    worst = mx.abs(together - alone).max().item()
    print(f"mlx-lm {version('mlx-lm')}, afm7: next-token logits of a prompt of {len(short)} tokens")
    print(f"alone:                 {[round(x, 3) for x in alone[:4].tolist()]} ...")
    print(f"with {padding} of padding left: {[round(x, 3) for x in together[:4].tolist()]} ...")
    print(f"expected: equal up to rounding; got: up to {worst:.3g} apart")
    return 1 if worst > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
