"""mlx-lm: the cache of a finished request keeps the buffers of the whole batch alive.

mlx_lm/generate.py:1499 gives a finishing row's cache with its response. BatchKVCache.extract
(mlx_lm/models/cache.py:1051) cuts it out with mx.contiguous, so that it should not hold the batch;
but nobody computes it: until then the graph holds its input, the keys and values of all rows. The
server (mlx_lm/server.py:1003) keeps such caches as they come, and counts the few bytes that they
would have (cache.py:1684). Mended by computing the caches where they are taken out.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import llama

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}


def kept(generator):
    """The cache of the first request to be kept, and no other."""
    (first, *_) = generator.insert([[1 + row] * 5 for row in range(8)], max_tokens=[3] * 8)
    found = []
    while not found:
        for response in generator.next()[1]:
            if response.finish_reason is not None and response.uid == first:
                found = response.prompt_cache
    return found


def main() -> int:
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    mx.eval(model.parameters())
    generator = BatchGenerator(model)
    cache = kept(generator)
    generator.close()
    mx.synchronize()

    counted = sum(c.nbytes for c in cache)
    before = mx.get_active_memory()
    mx.eval([c.state for c in cache])
    freed = before - mx.get_active_memory()
    print(f"mlx-lm {version('mlx-lm')}: 8 rows of 8 tokens; all have ended, one cache is kept")
    print(f"it counts {counted} bytes")
    print(f"expected: that is what it holds; got: computing it sets {freed} bytes free")
    return 1 if freed > counted else 0


if __name__ == "__main__":
    sys.exit(main())
