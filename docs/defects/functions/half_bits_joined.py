"""Rows of TurboQuant with half bits are decoded by another row's choice of elements once they join.

mlx_vlm/turboquant.py:6714 (BatchTurboQuantKVCache.extend) puts the packed rows of two batches
together and keeps the codec of the first. With 2.5 bits a codec gives one bit more to the elements
that were largest in its own prompt, so the other batch's rows are read by the wrong ones;
prefix_cache_merge() asks _codecs_compatible() first. Fixed by quantizing the rows that join again
with the codec that stays, or by choosing the elements once for a layer.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.turboquant import BatchTurboQuantKVCache


def prefilled(large):
    """One row of three tokens, and what it holds; elements from ``large`` on are larger."""
    cache = BatchTurboQuantKVCache([0], 4, key_bits=2.5)
    keys = mx.random.normal((1, 1, 3, 8), key=mx.random.key(large))
    keys = keys * mx.where(mx.arange(8) // 4 == large // 4, 4.0, 1.0)
    cache.update_and_fetch(keys, keys)
    return cache, cache.dequantize()[0]


def main() -> int:
    first, _ = prefilled(0)
    second, alone = prefilled(4)
    first.extend(second)
    joined = first.dequantize()[0][1:]
    away = mx.abs(joined - alone).max().item()
    print(
        f"mlx-vlm {version('mlx-vlm')}: a row's keys before and after it joins, expected the same"
    )
    print(f"largest difference: {away:.3g}, of elements up to {mx.abs(alone).max().item():.3g}")
    return 1 if away > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
