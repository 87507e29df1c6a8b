"""Quantized caches do not report how much they hold.

BatchQuantizedKVCache (mlx_vlm/models/cache.py:2346) has no ``nbytes``; that of its base class
(line 207) raises NotImplementedError. That of QuantizedKVCache (line 497) fails before the first
update. Fixed by the sum over the arrays, 0 without any.
"""

import sys
from importlib.metadata import version

from mlx_vlm.models.cache import BatchQuantizedKVCache, QuantizedKVCache


def main() -> int:
    failed = 0
    for cache in (BatchQuantizedKVCache([0]), QuantizedKVCache()):
        try:
            said = str(cache.nbytes)
        except (NotImplementedError, AttributeError) as error:
            said, failed = f"{type(error).__name__}: {error}", failed + 1
        print(f"mlx-vlm {version('mlx-vlm')}: {type(cache).__name__}.nbytes: {said}")
    print("expected: 0 both times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
