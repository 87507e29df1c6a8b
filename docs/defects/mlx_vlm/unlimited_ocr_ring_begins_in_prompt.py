"""unlimited_ocr forgets the beginning of a prompt whose last piece is a single token.

The cache keeps the whole prompt and the last few generated tokens. mlx_vlm/models/unlimited_ocr/
language.py:42 takes the first call of a single token for the first generated one. Of a prompt of
two tokens, or of one that is cut so that a single one is left before its last, the ring begins
within the prompt. Here the same tokens go through one cache, with the prompt in other pieces.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.unlimited_ocr.language import RingSlidingKVCache

WINDOW, PROMPT, GENERATED = 4, 6, 8


def positions_kept(pieces):
    """The positions that the cache gives back with the last generated token."""
    cache, at = RingSlidingKVCache(WINDOW), 0
    for size in [*pieces, *[1] * GENERATED]:
        keys = mx.arange(at, at + size, dtype=mx.float32).reshape(1, 1, size, 1)
        found, _ = cache.update_and_fetch(keys, keys)
        at += size
    return sorted(int(position) for position in found.flatten().tolist())


def main() -> int:
    # generate_step passes the last token of a prompt alone, behind all pieces.
    whole = positions_kept([PROMPT - 1, 1])
    cut = positions_kept([PROMPT - 2, 1, 1])
    print(f"mlx-vlm {version('mlx-vlm')}, unlimited_ocr: a window of {WINDOW}")
    print(f"a prompt of {PROMPT} tokens, and {GENERATED} generated ones; positions that are kept")
    print(f"the prompt in one piece and its last token: {whole}")
    print(f"in two pieces, the second of one token:     expected the same, got {cut}")
    return 0 if cut == whole else 1


if __name__ == "__main__":
    sys.exit(main())
