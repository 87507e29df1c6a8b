"""BufferedRotatingKVCache cannot be made from its own state.

The setter of ``state`` reads ``self.offset`` (mlx_vlm/models/cache.py:2320), which from_state()
(line 218) sets only afterwards, with ``meta_state``. Fixed by taking ``start_position`` from
meta_state alone, which holds it.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BufferedRotatingKVCache


def main() -> int:
    cache = BufferedRotatingKVCache(8)
    token = mx.ones((1, 1, 1, 4))
    cache.update_and_fetch(token, token)
    try:
        again = BufferedRotatingKVCache.from_state(cache.state, cache.meta_state)
        said, failed = f"offset {again.offset}", False
    except AttributeError as error:
        said, failed = f"AttributeError: {error}", True
    print(f"mlx-vlm {version('mlx-vlm')}: from_state: {said}")
    print("expected: offset 1")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
