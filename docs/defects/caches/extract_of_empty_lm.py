"""A row cannot be taken out of a batch cache before its first update.

extract() (mlx_lm/models/cache.py:1051) slices what is None: so do
BatchRotatingKVCache and ArraysCache (line 671).
Fixed by giving an empty stream, as merge() takes one.
"""

import sys
from importlib.metadata import version

from mlx_lm.models.cache import ArraysCache, BatchKVCache, BatchRotatingKVCache


def main() -> int:
    failed = 0
    for cache in (BatchKVCache([0, 0]), BatchRotatingKVCache(8, [0, 0]), ArraysCache(2)):
        try:
            said = f"empty: {cache.extract(0).empty()}"
        except TypeError as error:
            said, failed = f"TypeError: {error}", failed + 1
        print(f"mlx-lm {version('mlx-lm')}: {type(cache).__name__}.extract(0): {said}")
    print("expected: an empty stream each time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
