"""Prefix caching with TurboQuant: two prompts in one prefill, one with a reused prefix, raise.

The rest of a prompt that reuses a prefix is shorter than a prompt without one, and is padded at its
end: PromptProcessingBatch (mlx_vlm/generate/ar.py:1901) then calls ``prepare`` of each cache, which
BatchTurboQuantKVCache (mlx_vlm/turboquant.py:6565) has not. All its requests fail.
Fixed by ``prepare`` and ``finalize`` as BatchQuantizedKVCache has them.
"""

import sys
from importlib.metadata import version

from mlx_vlm.models.cache import BatchKVCache, BatchQuantizedKVCache
from mlx_vlm.turboquant import BatchTurboQuantKVCache


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: a cache of two rows with padding at their ends")
    made = {
        "float": BatchKVCache([0, 0]),
        "8 bits": BatchQuantizedKVCache([0, 0], bits=8),
        "TurboQuant": BatchTurboQuantKVCache([0, 0], bits=3.5),
    }
    wrong = False
    for what, cache in made.items():
        has = callable(getattr(cache, "prepare", None))
        wrong |= not has
        print(f"{what}: {'done' if has else 'no prepare(): APC mixed prefill raises RuntimeError'}")
    print("expected: done")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
