"""Drafters read the padding of a batch from its first cache, which may count it otherwise.

_batch_cache_left_padding (mlx_vlm/speculative/common.py:406) takes the first ``left_padding`` that
it finds. An ArraysCache lowers its own as columns pass, and a sliding window as columns are cut
off: only a cache that keeps all keys has the padding of the prompts. An eagle3 drafter for a
hybrid then believes that there is none (mlx_vlm/speculative/eagle3.py:514), and gemma4's assistant
shifts the keys of full attention by the padding of the window (mlx_vlm/speculative/mtp.py:960).
Tokens stay right, drafts are wasted.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import ArraysCache, BatchKVCache, BatchRotatingKVCache
from mlx_vlm.speculative.common import _batch_cache_left_padding

PADDING, COLUMNS, WINDOW = [12, 0], 17, 8


def after_prefill(cache: object) -> object:
    keys = mx.zeros((len(PADDING), 1, COLUMNS, 1))
    if isinstance(cache, ArraysCache):
        cache.advance(COLUMNS)
    else:
        cache.update_and_fetch(keys, keys)
    return cache


def main() -> int:
    whole = after_prefill(BatchKVCache(PADDING))
    states = after_prefill(ArraysCache(1, left_padding=PADDING))
    window = after_prefill(BatchRotatingKVCache(WINDOW, PADDING))
    window.update_and_fetch(mx.zeros((2, 1, 1, 1)), mx.zeros((2, 1, 1, 1)))
    print(f"mlx-vlm {version('mlx-vlm')}: prompts with {PADDING} columns of padding")
    found = [_batch_cache_left_padding([first, whole]).tolist() for first in (states, window)]
    for what, padding in zip(("a state", "a window"), found, strict=True):
        print(f"by the caches of {what} and of all keys: {padding}")
    print(f"expected: {PADDING}")
    return 0 if all(padding == PADDING for padding in found) else 1


if __name__ == "__main__":
    sys.exit(main())
