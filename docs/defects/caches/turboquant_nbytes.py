"""TurboQuant caches report less than they hold.

``nbytes`` (mlx_vlm/turboquant.py:6896, and 6558 single-stream) counts the columns in use; the
arrays grow by 256 columns at a time. Plain caches count what is allocated. Fixed by counting the
arrays.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_vlm.turboquant import BatchTurboQuantKVCache, TurboQuantKVCache


def main() -> int:
    failed = 0
    token = mx.ones((1, 1, 1, 32))
    for cache in (BatchTurboQuantKVCache([0], 4), TurboQuantKVCache(4)):
        for _ in range(2):
            cache.update_and_fetch(token, token)
        arrays = [array for _, array in tree_flatten((cache.keys, cache.values))]
        held = sum(array.nbytes for array in arrays)
        failed += cache.nbytes != held
        name = type(cache).__name__
        print(f"mlx-vlm {version('mlx-vlm')}: {name}.nbytes: {cache.nbytes}, expected {held}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
