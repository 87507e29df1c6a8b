"""BatchRotatingKVCache: what ``trim`` took back stays when a single token comes next.

``trim`` (mlx_vlm/models/cache.py:1983) only lowers ``_idx``; ``_update_in_place`` (line 1893) goes
by ``keys.shape[2]``: it cuts the oldest columns, which are valid, keeps the trimmed ones, and puts
the new token behind them. Speculative decoding with an eagle3 drafter does so whenever a draft is
rejected (mlx_vlm/speculative/eagle3.py verifies gemma4's first token in a call of its own). Mended
by cutting the trimmed columns off first.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchRotatingKVCache

WINDOW, PROMPT, DRAFTED, REJECTED = 8, 10, 3, 2


def coded(start: int, count: int) -> mx.array:
    """Keys of two rows that hold their position."""
    return mx.broadcast_to(mx.arange(start, start + count)[None, None, :, None], (2, 1, count, 1))


def main() -> int:
    cache = BatchRotatingKVCache(WINDOW, [0, 0])
    cache.update_and_fetch(coded(0, PROMPT), coded(0, PROMPT))
    cache.update_and_fetch(coded(PROMPT, DRAFTED), coded(PROMPT, DRAFTED))
    cache.trim(REJECTED)
    following = PROMPT + DRAFTED - REJECTED
    keys, _ = cache.update_and_fetch(coded(following, 1), coded(following, 1))
    held = sorted(keys[0, 0, :, 0].tolist())
    wanted = list(range(following - WINDOW + 1, following + 1))
    print(
        f"mlx-vlm {version('mlx-vlm')}: window {WINDOW}, {REJECTED} of {DRAFTED} tokens taken back"
    )
    print(f"positions held after one more token: {held}")
    print(f"expected: {wanted}")
    return 0 if held == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
