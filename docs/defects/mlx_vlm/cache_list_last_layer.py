"""The last layer of a batch is quantized after all where its cache is a list of caches.

``_make_cache`` asks ``should_quantize_kv_layer`` for each layer, which leaves out the last of more
than two because it is sensitive. For a ``CacheList`` (a state beside keys and values, as in
falcon_h1) ``to_batch_cache`` calls itself without that answer (mlx_vlm/generate/ar.py:976, 978), so
the caches inside are always quantized. ``maybe_quantize_kv_cache`` leaves the last layer alone.
Fixed by ``to_batch_cache(sub_c, quantize)``.
"""

import sys
from importlib.metadata import version

from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.cache import ArraysCache, CacheList, KVCache


class Plain:
    """A model of four layers with keys and values."""

    def make_cache(self) -> list:
        return [KVCache() for _ in range(4)]


class Listed:
    """A model of four layers with keys and values beside a state."""

    def make_cache(self) -> list:
        return [CacheList(ArraysCache(1), KVCache()) for _ in range(4)]


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: the caches of four layers with kv_bits=8")
    plain = [type(c).__name__ for c in _make_cache(Plain(), [0], kv_bits=8)]
    listed = [type(c.caches[1]).__name__ for c in _make_cache(Listed(), [0], kv_bits=8)]
    print(f"KVCache:               {plain}")
    print(f"KVCache in a CacheList: {listed}")
    print("expected: the same kinds")
    return 1 if plain != listed else 0


if __name__ == "__main__":
    sys.exit(main())
