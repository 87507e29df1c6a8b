"""Prefix caching: a state that no step has filled yet cannot be stored.

ArraysCache.extract (mlx_vlm/models/cache.py:1268) slices every entry, also those that are None.
longcat_flash_ngram keeps its last tokens in such a cache and fills it only after all layers have
run, where the prompt gave embeddings not at all: the first checkpoint of any prompt raises.
Fixed by passing None on, as ``filter`` does four lines above.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc import snapshot_prompt_cache_row
from mlx_vlm.models.cache import ArraysCache


def main() -> int:
    empty, half = ArraysCache(1), ArraysCache(2)
    half[0] = mx.ones((2, 3))
    empty.left_padding = half.left_padding = mx.array([0, 0])
    print(f"mlx-vlm {version('mlx-vlm')}: the first of two rows taken for the prefix cache")
    wrong = False
    for what, cache in (("empty", empty), ("one of two entries", half)):
        try:
            snapshot_prompt_cache_row([cache], 0)
            said = "stored"
        except TypeError as error:
            said, wrong = f"TypeError: {error}", True
        print(f"{what}: {said}")
    print("expected: stored")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
