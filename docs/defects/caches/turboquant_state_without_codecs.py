"""A TurboQuant cache that was made of a state cannot be kept by prefix caching.

``state`` and ``meta_state`` (mlx_vlm/turboquant.py:6828, 6843) have the packed keys and values, and
not the codecs that read them. Until the next update there are none, and what is kept of the cache
cannot be restored (mlx_vlm/turboquant.py:5300). Fixed by codecs in the state, as in
prefix_cache_snapshot.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc_adapters import clone_cache_entry
from mlx_vlm.turboquant import TurboQuantKVCache


def main() -> int:
    cache = TurboQuantKVCache(4)
    cache.update_and_fetch(mx.ones((1, 1, 2, 32)), mx.ones((1, 1, 2, 32)))
    again = TurboQuantKVCache(4)
    again.state, again.meta_state = cache.state, cache.meta_state
    try:
        clone_cache_entry(again, min_capacity_tokens=None, eval_targets=[])
        said, failed = "is kept", False
    except ValueError as error:
        said, failed = f"ValueError: {error}", True
    print(f"mlx-vlm {version('mlx-vlm')}: a cache made of the state of another: {said}")
    print("expected: is kept")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
