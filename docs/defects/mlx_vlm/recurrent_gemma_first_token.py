"""recurrent_gemma scales the first token of a prompt that is put beside rows with a state.

mlx_vlm/models/recurrent_gemma/language.py:127 leaves the first token of a sequence unscaled and
takes the absence of a state for the sign of it. A row without a prefix beside rows that reuse one
gets zeros for a state (ArraysCache.merge, mlx_vlm/models/cache.py:1311), and is scaled. Fixed by
going by each row's own position.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import ArraysCache
from mlx_vlm.models.recurrent_gemma.language import RecurrentBlock

WIDTH = 16


def main() -> int:
    mx.random.seed(0)
    block = RecurrentBlock(width=WIDTH, num_heads=2)
    block.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), block.parameters()))
    prefix, rest, new = (mx.random.normal((1, n, WIDTH)) for n in (6, 4, 4))
    alone = block(new, cache=ArraysCache(size=2))
    warm = ArraysCache(size=2)
    block(prefix, cache=warm)
    merged = ArraysCache.merge([warm, ArraysCache(size=2)])
    beside = block(mx.concatenate([rest, new]), cache=merged)[1:]
    apart = mx.abs(beside - alone).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, recurrent_gemma: a new row beside one that goes on")
    print(f"expected 0 from the same row alone, got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
