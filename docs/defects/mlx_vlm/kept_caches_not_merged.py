"""Prefix caching of hy_v4, unlimited_ocr and z1t: a prefix is found, and then computed again.

merge_cache_entries (mlx_vlm/apc_adapters.py:520) asks the kept caches themselves, and
KVCache.prefix_cache_merge (mlx_vlm/models/cache.py:626) merges only those of its own class: one of
HyV4KVCache or RingSlidingKVCache, which extend it, gives None, and all prompts that begin with it
are prefilled as if nothing had been kept, though the pool counts hits. Fixed by isinstance in
place of the comparison of types. The cache of z1t has no such method at all.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc_adapters import merge_cache_entries
from mlx_vlm.models.cache import KVCache
from mlx_vlm.models.hy_v4.cache import HyV4KVCache
from mlx_vlm.models.unlimited_ocr.language import RingSlidingKVCache
from mlx_vlm.models.z1t.language import Z1TCache

TOKENS = 8


def kept(kind: type) -> object:
    if kind is Z1TCache:
        return kind.from_state([mx.ones((1, TOKENS))] * 4, str(TOKENS))
    cache = kind(2 * TOKENS) if kind is RingSlidingKVCache else kind()
    cache.update_and_fetch(mx.ones((1, 1, TOKENS, 4)), mx.ones((1, 1, TOKENS, 4)))
    return cache


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: a kept prompt of {TOKENS} tokens is taken into a batch")
    wrong = False
    for kind in (KVCache, HyV4KVCache, RingSlidingKVCache, Z1TCache):
        merged = merge_cache_entries([kept(kind)], [TOKENS])
        got = "nothing" if merged is None else f"a cache of {TOKENS} tokens"
        wrong |= merged is None
        print(f"{kind.__name__}: {got}")
    print(f"expected: a cache of {TOKENS} tokens for each")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
