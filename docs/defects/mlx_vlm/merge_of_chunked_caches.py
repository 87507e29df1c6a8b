"""Caches of chunked attention lose all they hold when rows are put together.

``ChunkedKVCache`` (mlx_vlm/models/cache.py:1335) has no ``size`` of its own; its base class says 0
(line 197), and ``BatchKVCache.merge`` (line 1738) goes by that: the rows come out empty. A prefix
from the prefix cache is so lost in llama4's chunked layers and kept in the others, and their mask,
made from the former, does not fit. Fixed by counting what the cache holds.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, ChunkedKVCache, KVCache

TOKENS = 6


def main() -> int:
    found = {}
    for kind, cache in {"KVCache": KVCache(), "ChunkedKVCache": ChunkedKVCache(8)}.items():
        keys = mx.ones((1, 1, TOKENS, 4))
        cache.update_and_fetch(keys, keys)
        merged = BatchKVCache.merge([cache])
        found[kind] = merged.offset.tolist()
        print(f"mlx-vlm {version('mlx-vlm')}: {kind} of {TOKENS} tokens, merged: {found[kind]}")
    print(f"expected: [{TOKENS}] both times")
    return 0 if all(offset == [TOKENS] for offset in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
