"""The quantized batch caches say that they hold nothing: ``size()`` is always 0.

BatchQuantizedKVCache (mlx_vlm/models/cache.py:2346) and BatchTurboQuantKVCache
(mlx_vlm/turboquant.py:6565) inherit ``size`` of a cache that does not know it; BatchKVCache gives
its number of columns. zaya1_vl asks for it where a piece of a prompt begins
(mlx_vlm/models/zaya1_vl/language.py:37): from the second piece on, rows are masked as if it began
the prompt, and tokens of shorter rows count as padding. Mended by returning ``_idx``.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, BatchQuantizedKVCache
from mlx_vlm.turboquant import BatchTurboQuantKVCache

PIECE = 5


def main() -> int:
    keys = mx.random.normal((2, 1, PIECE, 64))
    sizes = {}
    for cache in (
        BatchKVCache([0, 2]),
        BatchQuantizedKVCache([0, 2]),
        BatchTurboQuantKVCache([0, 2], bits=3.5),
    ):
        cache.update_and_fetch(keys, keys)
        sizes[type(cache).__name__] = cache.size()
    print(f"mlx-vlm {version('mlx-vlm')}: size() after a piece of {PIECE} tokens")
    for name, size in sizes.items():
        print(f"{name}: {size}")
    print(f"expected: {PIECE} for each")
    return 0 if set(sizes.values()) == {PIECE} else 1


if __name__ == "__main__":
    sys.exit(main())
