"""A BufferedRotatingKVCache that prefix caching keeps in a file comes back as another one.

DiskBlockStore writes it as the RotatingKVCache that it is derived from (mlx_vlm/apc.py:2737), with
the spare columns of its buffer and without ``start_position``: what is read takes them for a ring,
and its keys are others. Fixed by a kind of its own, or by keeping none.
"""

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx_vlm.apc import DiskBlockStore
from mlx_vlm.models.cache import BufferedRotatingKVCache

WINDOW, BUFFER, LENGTH = 6, 3, 7


def window(cache: object) -> list[int]:
    """The positions of the keys that one more token sees."""
    token = mx.full((1, 1, 1, 4), LENGTH)
    mask = cache.make_mask(1, return_array=True, window_size=None)
    keys, _ = cache.update_and_fetch(token, token)
    held = [int(key) for key in keys[0, 0, :, 0].tolist()]
    seen = [True] * len(held) if mask is None else mask.reshape(-1).tolist()
    return sorted(key for key, ok in zip(held, seen, strict=True) if ok)


def main() -> int:
    cache = BufferedRotatingKVCache(WINDOW, buffer_size=BUFFER)
    for start in range(0, LENGTH, 4):
        positions = mx.arange(start, min(start + 4, LENGTH), dtype=mx.float32)
        tokens = mx.broadcast_to(positions[None, None, :, None], (1, 1, positions.size, 4))
        cache.update_and_fetch(tokens, tokens)
    with tempfile.TemporaryDirectory() as folder:
        store = DiskBlockStore(Path(folder))
        store.save_exact_cache(1, range(LENGTH), 0, [cache], synchronous=True)
        _, _, (read,) = store.load_exact_cache(1)
        store.close()
    print(f"mlx-vlm {version('mlx-vlm')}: kept {type(cache).__name__}, read {type(read).__name__}")
    found, wanted = window(read), window(cache)
    print(f"the next token sees {found}")
    print(f"expected: {wanted}")
    return 0 if found == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
