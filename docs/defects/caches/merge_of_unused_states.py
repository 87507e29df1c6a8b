"""ArraysCache.merge fails where no row has one of the states.

merge() (mlx_lm/models/cache.py:709) takes the first cache that has the state, by next() without a
default: a state that no row has ends in StopIteration, though others are there. A layer that uses
but one of its states is merged so when a prefix is reused. Fixed by leaving such a state None, as
mlx-vlm does.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache


def main() -> int:
    cache = ArraysCache(2)
    cache[0] = mx.ones((1, 3, 4))
    try:
        said, failed = f"states of {ArraysCache.merge([cache])[0].shape}", False
    except StopIteration:
        said, failed = "StopIteration", True
    print(f"mlx-lm {version('mlx-lm')}: one row with state 0 and without state 1, merged: {said}")
    print("expected: states of (1, 3, 4)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
