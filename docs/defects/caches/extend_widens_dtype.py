"""extend() with a batch that was never fed makes the whole cache float32.

It stands ``mx.array([])`` for the keys that are not there (mlx_vlm/models/cache.py:1710, and 2064
in BatchRotatingKVCache); that is float32, and so is what it is joined with: a cache of bfloat16
doubles in size. Fixed by zeros of the other batch's dtype, as in mlx-lm.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache


def main() -> int:
    failed = 0
    token = mx.ones((1, 1, 1, 4), dtype=mx.bfloat16)
    pairs = (
        (BatchKVCache([0]), BatchKVCache([0])),
        (BatchRotatingKVCache(8, [0]), BatchRotatingKVCache(8, [0])),
    )
    for cache, empty in pairs:
        cache.update_and_fetch(token, token)
        cache.extend(empty)
        failed += cache.keys.dtype != mx.bfloat16
        name = type(cache).__name__
        print(f"mlx-vlm {version('mlx-vlm')}: {name}: bfloat16 becomes {cache.keys.dtype}")
    print("expected: bfloat16 both times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
