"""BufferedRotatingKVCache says that it can be trimmed when it can not.

is_trimmable() (mlx_vlm/models/cache.py:2284) is always true, but a compaction (line 2221) drops all
that the next window does not need: trimmed right after it, the cache lacks the first keys of the
window, without an error. Fixed by is_trimmable() and trim() that go by ``start_position``, or by a
compaction that leaves ``buffer_size`` in front.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BufferedRotatingKVCache

WINDOW, BUFFER, TRIMMED = 6, 3, 2


def main() -> int:
    cache = BufferedRotatingKVCache(WINDOW, buffer_size=BUFFER)
    for position in range(WINDOW + BUFFER + 1):
        token = mx.full((1, 1, 1, 4), position)
        cache.update_and_fetch(token, token)
    trimmed = cache.trim(TRIMMED) if cache.is_trimmable() else 0
    following = cache.offset
    token = mx.full((1, 1, 1, 4), following)
    keys, _ = cache.update_and_fetch(token, token)
    held = [int(key) for key in keys[0, 0, :, 0].tolist()][-WINDOW:]
    wanted = list(range(following - WINDOW + 1, following + 1))
    print(f"mlx-vlm {version('mlx-vlm')}: window {WINDOW}, buffer {BUFFER}, {trimmed} taken back")
    print(f"keys of the window of the next token: {held}")
    print(f"expected: {wanted}")
    return 0 if held == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
