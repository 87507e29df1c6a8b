"""BatchRotatingKVCache.make_mask takes the place in the ring for the number of columns.

Several tokens after single ones (the verification of drafts after a prefill that ended with one
token): ``_update_concat`` (mlx_vlm/models/cache.py:1836) first puts the ring in order, but the mask
was made before that, with ``_idx`` of the ring (line 2005), so its padding of short rows is one or
more columns too wide: such a row does not see its first keys. Fixed by the number of columns
that will be there, ``keys.shape[2]``, while the ring is rotated.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchRotatingKVCache

WINDOW, COLUMNS, SHORT, DRAFTED = 8, 11, 4, 3


def coded(start: int, count: int) -> mx.array:
    """Keys of two rows that hold their column."""
    return mx.broadcast_to(mx.arange(start, start + count)[None, None, :, None], (2, 1, count, 1))


def main() -> int:
    padding = COLUMNS + 1 - SHORT
    cache = BatchRotatingKVCache(WINDOW, [padding, 0])
    cache.update_and_fetch(coded(0, COLUMNS), coded(0, COLUMNS))
    cache.update_and_fetch(coded(COLUMNS, 1), coded(COLUMNS, 1))
    mask = cache.make_mask(DRAFTED, window_size=WINDOW)
    keys, _ = cache.update_and_fetch(coded(COLUMNS + 1, DRAFTED), coded(COLUMNS + 1, DRAFTED))
    columns = keys[0, 0, :, 0].tolist()
    seen = [c for c, ok in zip(columns, mask[0, 0, 0].tolist(), strict=False) if ok]
    wanted = list(range(padding, COLUMNS + 2))
    print(f"mlx-vlm {version('mlx-vlm')}: window {WINDOW}, {SHORT} tokens beside more")
    print(f"the first of {DRAFTED} further tokens of that row sees columns {seen}")
    print(f"expected: {wanted}")
    return 0 if seen == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
