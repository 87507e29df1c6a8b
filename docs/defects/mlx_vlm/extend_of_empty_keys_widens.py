"""A row without keys makes the keys of all rows float32 when it is joined.

BatchKVCache.extend and BatchRotatingKVCache.extend put ``mx.array([])``, which is float32, in the
place of keys that are not there (mlx_vlm/models/cache.py:1709, :2063), and concatenate: the others'
keys are widened, take twice the memory from then on, and so does what attends to them. It shows
where a layer's cache stays empty for short prompts, as in glm5_next. Right is the dtype of the keys
that are there.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache


def main() -> int:
    wrong = 0
    for make in (lambda: BatchKVCache([0]), lambda: BatchRotatingKVCache(8, [0])):
        filled, empty = make(), make()
        keys = mx.zeros((1, 2, 4, 16), mx.bfloat16)
        filled.update_and_fetch(keys, keys)
        filled.extend(empty)
        wrong += filled.keys.dtype != mx.bfloat16
        print(
            f"mlx-vlm {version('mlx-vlm')}: {type(filled).__name__} of bfloat16, joined by an "
            f"empty row, holds {filled.keys.dtype}; expected {mx.bfloat16}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
