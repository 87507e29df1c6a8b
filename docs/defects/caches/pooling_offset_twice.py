"""BatchPoolingCache.make_mask adds an offset that is a number twice.

``query_pos = offset + mx.arange(offset + 1, ...)`` (mlx_vlm/models/cache.py:3375): queries see
pooled tokens of their future. An array of offsets is added once. Fixed by one of the two.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchPoolingCache

RATIO, BEFORE, NEW = 3, 3, 6


def main() -> int:
    cache = BatchPoolingCache(RATIO, [0])
    for offset, count in ((0, BEFORE), (BEFORE, NEW)):
        tokens = mx.ones((1, count, 2))
        windows, _, _ = cache.accumulate_windows(tokens, tokens, offset)
        cache.update_and_fetch(windows.reshape(1, -1, RATIO * 2))
    as_number = cache.make_mask(NEW, BEFORE).sum(axis=-1).tolist()
    as_array = cache.make_mask(NEW, mx.array([BEFORE])).sum(axis=-1).tolist()
    print(f"mlx-vlm {version('mlx-vlm')}: pooled tokens seen by {NEW} queries from {BEFORE} on")
    print(f"offset as a number: {as_number}, as an array: {as_array}")
    print("expected: the same")
    return 0 if as_number == as_array else 1


if __name__ == "__main__":
    sys.exit(main())
