"""extend() of a TurboQuant batch and one that was never fed loses rows.

Where one side has no keys, the other side's stay as they are (mlx_vlm/turboquant.py:6764, 6771),
with offsets and padding of all rows: fewer rows of keys than of offsets, and the next update
raises. Fixed by zeros for the rows without keys, as in the other batch caches.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.turboquant import BatchTurboQuantKVCache


def main() -> int:
    cache = BatchTurboQuantKVCache([0], 4)
    cache.update_and_fetch(mx.ones((1, 1, 1, 32)), mx.ones((1, 1, 1, 32)))
    cache.extend(BatchTurboQuantKVCache([0], 4))
    rows = cache.keys.norms.shape[0]
    try:
        token = mx.ones((2, 1, 1, 32))
        cache.update_and_fetch(token, token)
        said, failed = "goes on", False
    except ValueError as error:
        said, failed = f"ValueError: {error}", True
    print(f"mlx-vlm {version('mlx-vlm')}: 2 rows of offsets, {rows} of keys; next update: {said}")
    print("expected: 2 rows of both, and the update goes on")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
