"""cache_nbytes takes new objects for counted ones: of several states it counts the first alone.

mlx_vlm/models/cache.py:116 remembers the ids of what it has looked at. A cache without ``nbytes``
is counted by its ``state``, a tuple that is made for the question and gone after it: the next
cache's tuple may get the same id, and counts as nothing. By these bytes the server bounds the
prefixes that it keeps (mlx_vlm/apc.py:3256), and reports them as ``resident_bytes``. Fixed by
keeping what was looked at until the count is done.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import cache_nbytes
from mlx_vlm.models.z1t.language import Z1TCache

LAYERS, STATES = 4, 4


def main() -> int:
    caches = [Z1TCache() for _ in range(LAYERS)]
    for cache in caches:
        cache.state = tuple(mx.zeros((1, 4, 17)) for _ in range(STATES))
    held = sum(array.nbytes for cache in caches for array in cache.state)
    alone = [cache_nbytes([cache]) for cache in caches]
    together = cache_nbytes(caches)
    print(f"mlx-vlm {version('mlx-vlm')}: cache_nbytes of {LAYERS} caches that hold {held} bytes")
    print(f"one by one: {' + '.join(map(str, alone))} = {sum(alone)}")
    print(f"together, expected the same: {together}")
    return 1 if together != held else 0


if __name__ == "__main__":
    sys.exit(main())
