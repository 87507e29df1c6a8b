"""mlx-lm: the graph behind a batch grows with each token, where a layer does not read its offset.

mlx_lm/models/cache.py:929, BatchKVCache.update_and_fetch, makes a new array of offsets in each
step from the last one's. A layer that rotates nothing never reads it, so nobody computes it: each
step adds nodes to a graph that holds all steps since the prompt. Layers without rotary positions:
gpt2, cohere2, smollm3 and others. Mended by computing offsets with the step's tokens, or by
counting them on the host.
"""

import io
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import gpt2

CONFIG = {
    "model_type": "gpt2",
    "n_ctx": 64,
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 64,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 64,
}
TOKENS = 40


def main() -> int:
    mx.random.seed(0)
    model = gpt2.Model(gpt2.ModelArgs.from_dict(CONFIG))
    generator = BatchGenerator(model)
    generator.insert([[1, 2, 3], [4, 5, 6]], max_tokens=[TOKENS] * 2)
    edges, done = [], False
    while not done:
        responses = generator.next()[1]
        done = any(r.finish_reason for r in responses)
        caches = generator._generation_batch.prompt_cache
        if responses and caches:
            text = io.StringIO()
            mx.export_to_dot(text, *(cache.offset for cache in caches))
            edges.append(text.getvalue().count("->"))
    print(f"mlx-lm {version('mlx-lm')}, gpt2: edges of the graph behind the layers' offsets")
    print(f"after token 2: {edges[1]}; after token {len(edges)}: {edges[-1]}")
    print("expected: as many after each token")
    return 1 if edges[-1] > edges[1] else 0


if __name__ == "__main__":
    sys.exit(main())
