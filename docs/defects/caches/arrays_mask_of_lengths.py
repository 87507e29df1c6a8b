"""ArraysCache.make_mask forgets the lengths of prompts padded on the right.

It looks at ``lengths`` only where ``left_padding`` is None (mlx_vlm/models/cache.py:1284), and
merge() of empty caches sets ``left_padding`` to zeros (line 1302): the padding of the next prefill
then counts as real in recurrent layers. Fixed by both, as in mlx-lm.
"""

import sys
from importlib.metadata import version

from mlx_vlm.models.cache import ArraysCache


def main() -> int:
    cache = ArraysCache.merge([ArraysCache(1), ArraysCache(1)])
    cache.prepare(lengths=[1, 3])
    mask = cache.make_mask(3).tolist()
    wanted = [[True, False, False], [True, True, True]]
    print(f"mlx-vlm {version('mlx-vlm')}: prompts of 1 and 3 tokens padded to 3: {mask}")
    print(f"expected: {wanted}")
    return 0 if mask == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
