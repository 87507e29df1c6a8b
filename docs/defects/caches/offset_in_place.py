"""The offset of a batch cache is counted up in place.

``self.offset += n`` (mlx_vlm/models/cache.py:1602, 1920, 2440; mlx_vlm/turboquant.py:6674) changes
the array itself: a model that reads ``cache.offset``, updates, and rotates its queries by what it
read, rotates them too far. Fixed by ``self.offset = self.offset + n``, as in mlx-lm.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, BatchQuantizedKVCache, BatchRotatingKVCache
from mlx_vlm.turboquant import BatchTurboQuantKVCache


def main() -> int:
    failed = 0
    token = mx.ones((2, 1, 1, 32))
    caches = (
        BatchKVCache([0, 0]),
        BatchRotatingKVCache(8, [0, 0]),
        BatchQuantizedKVCache([0, 0], group_size=32),
        BatchTurboQuantKVCache([0, 0], 4),
    )
    for cache in caches:
        before = cache.offset
        cache.update_and_fetch(token, token)
        failed += before.tolist() != [0, 0]
        name = type(cache).__name__
        print(f"mlx-vlm {version('mlx-vlm')}: {name}: the offset read before is {before.tolist()}")
    print("expected: [0, 0] each time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
