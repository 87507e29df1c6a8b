"""Batch caches that come from a state lack what their next verbs need.

from_state() (mlx_vlm/models/cache.py:218) makes the object without __init__, and the setters do not
set ``_lengths`` (read at line 2005), ``_right_padding`` (line 1675) and TurboQuant's codecs
(mlx_vlm/turboquant.py:6623): the next verb raises an AttributeError. Fixed by setting them with
the state.
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
        cache.update_and_fetch(token, token)
        again = type(cache).from_state(cache.state, cache.meta_state)
        try:
            again.filter(mx.array([0]))
            again.update_and_fetch(token[:1], token[:1])
            said = "goes on"
        except AttributeError as error:
            said, failed = f"AttributeError: {error}", failed + 1
        print(f"mlx-vlm {version('mlx-vlm')}: {type(cache).__name__}.from_state: {said}")
    print("expected: all go on")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
