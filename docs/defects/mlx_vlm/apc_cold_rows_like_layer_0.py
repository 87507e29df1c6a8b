"""Prefix caching: rows without a prefix are padded with the shapes of layer 0's keys.

make_warm_batch_kv_cache_multi (mlx_vlm/apc.py:4250) takes heads, width and dtype from the keys of
layer 0, and makes from them the zeros of cold rows and of shorter prefixes for the keys *and
values* of all layers (lines 4263 to 4277). Where values are narrower than keys (deepseek's latent
attention, minicpm3, youtu_llm) or layers have other numbers of heads (nemotron_nas, openelm), the
rows do not fit together. Fixed by asking each layer's own keys and values.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc import make_warm_batch_kv_cache_multi
from mlx_vlm.models.cache import KVCache

TOKENS = 4


def prefix(*layers: tuple[int, int, int]) -> dict:
    """What is found of a prompt: for each layer heads, width of a key, width of a value."""
    caches = []
    for heads, key, value in layers:
        cache = KVCache()
        cache.update_and_fetch(mx.ones((1, heads, TOKENS, key)), mx.ones((1, heads, TOKENS, value)))
        caches.append(cache)
    return {"warm_cache": caches, "prefix_len": TOKENS}


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: a row with a prefix of {TOKENS} tokens beside a cold row")
    wrong = False
    for what, layers in {
        "all alike": [(2, 8, 8), (2, 8, 8)],
        "values narrower than keys": [(2, 8, 4), (2, 8, 4)],
        "another number of heads in layer 1": [(2, 8, 8), (1, 8, 8)],
    }.items():
        try:
            caches, _ = make_warm_batch_kv_cache_multi([prefix(*layers), None], len(layers))
            said = str([tuple(c.state[1].shape) for c in caches])
        except ValueError as error:
            said, wrong = f"ValueError: {error}", True
        print(f"{what}: {said}")
    print("expected: two rows in each case")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
