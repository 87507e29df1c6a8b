"""Ragged prompts whose last piece has one column cannot be fed to a rotating cache.

Between prepare() and finalize() ``_update_in_place`` (mlx_lm/models/cache.py:1177) raises. But
PromptProcessingBatch.prompt makes such pieces: prompts of 2 tokens and 1 (one column beside
padding), or of n * prefill_step_size + 2. Fixed by ``_update_concat`` while ``_lengths`` is set,
as in mlx-vlm.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache


def main() -> int:
    cache = BatchRotatingKVCache(8, [0, 0])
    cache.prepare(lengths=[1, 0], right_padding=[0, 1])
    token = mx.ones((2, 1, 1, 4))
    try:
        cache.update_and_fetch(token, token)
        cache.finalize()
        said, failed = f"offsets {cache.offset.tolist()}", False
    except RuntimeError as error:
        said, failed = f"RuntimeError: {error}", True
    print(f"mlx-lm {version('mlx-lm')}: prompts of 1 and 0 tokens, padded: {said}")
    print("expected: offsets [1, 0]")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
