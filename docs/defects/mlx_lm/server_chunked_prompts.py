"""mlx_lm.server answers a prompt from another one's chunked cache, which has let its begin go.

ChunkedKVCache (llama4) keeps the last chunk alone. Once it has slid, ``trim`` (models/cache.py:788)
cuts no more tokens than it holds, and ``is_trimmable`` still says True. LRUPromptCache (line 1665)
does not look at how many tokens were cut: what is left serves a shorter prompt that begins alike.
https://github.com/ml-explore/mlx-lm/issues/1494
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache, LRUPromptCache

CHUNK, KEPT, ASKED = 8, 40, 20


def main() -> int:
    cache = ChunkedKVCache(CHUNK)
    for position in range(KEPT):  # each key is its position
        cache.maybe_trim_front()
        keys = mx.full((1, 1, 1, 4), float(position))
        cache.update_and_fetch(keys, keys)
    store = LRUPromptCache()
    store.insert_cache("model", list(range(KEPT)), [cache])
    found, rest = store.fetch_nearest_cache("model", list(range(ASKED)))
    print(f"mlx-lm {version('mlx-lm')}: {ASKED - len(rest)} of {ASKED} tokens are said to be kept")
    if found is None:
        return 0
    want, got = ASKED - len(rest), found[0].offset
    print(f"expected a cache of {want} tokens or none, got one of {got}")
    return int(want != got)


if __name__ == "__main__":
    sys.exit(main())
