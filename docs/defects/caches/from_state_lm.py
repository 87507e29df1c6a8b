"""Batch caches that come from a state lack what padded prompts and updates need.

from_state() (mlx_lm/models/cache.py:166) makes the object without __init__, and the setters do not
set ``_lengths`` (read at line 1177) and ``_right_padding`` (line 962): the next update or
finalize() raises an AttributeError. Fixed by setting them with the state.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache


def main() -> int:
    failed = 0
    token = mx.ones((2, 1, 1, 4))
    for cache in (BatchKVCache([0, 0]), BatchRotatingKVCache(8, [0, 0])):
        cache.update_and_fetch(token, token)
        again = type(cache).from_state(cache.state)
        try:
            again.update_and_fetch(token, token)
            again.finalize()
            said = "goes on"
        except AttributeError as error:
            said, failed = f"AttributeError: {error}", failed + 1
        print(f"mlx-lm {version('mlx-lm')}: {type(cache).__name__}.from_state: {said}")
    print("expected: both go on")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
