"""mlx-lm: a recurrent state that is taken out of a batch keeps the state of all rows alive.

mlx_lm/models/cache.py:671, ArraysCache.extract, slices one row off each array and leaves it at
that: also when computed, a slice is a view of the whole buffer. BatchKVCache.extract (line 1051)
has mx.contiguous for that. So each finished request whose cache is kept, as the server keeps it,
holds the states of the whole batch, and counts its own. Mended by mx.contiguous here, too.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

ROWS, STATE = 8, 1 << 16


def main() -> int:
    batch = ArraysCache(2)
    for index in range(2):
        batch[index] = mx.ones((ROWS, STATE)) * index
    mx.eval(batch.state)

    row = batch.extract(3)
    mx.eval(row.state)
    counted = row.nbytes
    del batch
    before = mx.get_active_memory()
    del row
    held = before - mx.get_active_memory()
    print(f"mlx-lm {version('mlx-lm')}: one row's state is taken out of a batch of {ROWS}")
    print(f"expected: it holds the {counted} bytes that it counts; got: {held} bytes")
    return 1 if held > 2 * counted else 0


if __name__ == "__main__":
    sys.exit(main())
