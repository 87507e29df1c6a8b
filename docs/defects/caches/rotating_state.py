"""The state of BatchRotatingKVCache cannot be saved empty, and is read as rotated.

``state`` asks keys for their shape where they are None (mlx_vlm/models/cache.py:1960).
``meta_state`` holds texts, and ``bool("False")`` is true (line 1978): every restored cache counts
as a ring that has gone round. Fixed by a test for None, and by ``v[3] == "True"``.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchRotatingKVCache


def main() -> int:
    empty = BatchRotatingKVCache(8, [0])
    try:
        saved = empty.state[0] is None
    except AttributeError as error:
        saved = False
        print(f"mlx-vlm {version('mlx-vlm')}: state of an empty cache: AttributeError: {error}")
    cache = BatchRotatingKVCache(8, [0])
    token = mx.ones((1, 1, 1, 4))
    cache.update_and_fetch(token, token)
    again = BatchRotatingKVCache(8, [0])
    again.state, again.meta_state = cache.state, cache.meta_state
    print(f"mlx-vlm {version('mlx-vlm')}: rotated: {cache.rotated}; restored: {again.rotated}")
    print("expected: a state, and False both times")
    return 0 if saved and again.rotated == cache.rotated else 1


if __name__ == "__main__":
    sys.exit(main())
