"""mlx-lm's kept sequences: one of a single token is not found for a longer prompt.

mlx_lm/models/cache.py:1578 takes a prefix whose last token has an index above 0: the first token's
is 0. A cache that can be cut is found another way, one that can't (ArraysCache) is not.
Fixed by ``last_index >= 0``.
"""

import sys
from importlib.metadata import version

from mlx_lm.models.cache import ArraysCache, LRUPromptCache


def main() -> int:
    print(f"mlx-lm {version('mlx-lm')}: expected what is kept of the first 1, 2 tokens to be found")
    left = []
    for count in (1, 2):
        store = LRUPromptCache()
        store.insert_cache("model", [5, 6, 7][:count], [ArraysCache(1)])
        found, rest = store.fetch_nearest_cache("model", [5, 6, 7])
        left.append(len(rest))
        print(
            f"kept of {count}: {'found' if found else 'not found'}, {len(rest)} tokens to compute"
        )
    return 0 if left == [2, 1] else 1


if __name__ == "__main__":
    sys.exit(main())
