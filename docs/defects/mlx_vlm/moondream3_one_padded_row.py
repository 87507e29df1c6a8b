"""moondream3 counts the padding of a row that is left alone in its batch.

mlx_vlm/models/moondream3/language.py:83 takes the offset of each row only where there are two rows
or more. A batch of one row has a vector of one offset; then ``cache_position_offset`` answers with
the columns of the batch, padding included, so the row goes on at later positions than its cached
keys. Mended by asking whether the offset is an array, not how long it is.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.models.moondream3 import language
from mlx_vlm.models.moondream3.config import TextConfig

CONFIG = TextConfig(
    hidden_size=32, num_attention_heads=2, num_key_value_heads=2, head_dim=16, rope_dim=8
)
PADDING, FIRST, THEN = 4, 6, 2


def positions(seen: list, rows: int) -> list[float]:
    """What the last tokens of row 0 are told of their positions, in a batch of so many rows."""
    mx.random.seed(0)
    attention = language.Attention(CONFIG)
    cache = BatchKVCache([PADDING] + [0] * (rows - 1))
    cache.update_and_fetch(mx.zeros((rows, 2, FIRST, 16)), mx.zeros((rows, 2, FIRST, 16)))
    attention(mx.zeros((rows, THEN, 32)), cache=cache)
    told = seen[-1]
    return (told[0] if told.ndim == 2 else told).tolist()


def main() -> int:
    seen: list = []
    tau = language.Tau.__call__

    def heard(self, qkv, told):
        seen.append(told)
        return tau(self, qkv, told)

    language.Tau.__call__ = heard
    expected, got = positions(seen, 2), positions(seen, 1)
    print(
        f"mlx-vlm {version('mlx-vlm')}, moondream3: {FIRST} columns done, {PADDING} of them padding"
    )
    print(f"expected: positions {expected}, as beside another row; got {got} alone")
    return 1 if got != expected else 0


if __name__ == "__main__":
    sys.exit(main())
