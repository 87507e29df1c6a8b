"""jina_vlm: all rows of a batch are rotated to the position of the longest one.

mlx_vlm/models/jina_vlm/language.py:43 takes the largest of the rows' offsets. While a batch stays
the same this shifts all of a row alike, which attention does not see; when a longer row joins or
the longest leaves, new queries and keys do not fit those in the cache. Mended by each row's offset.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.jina_vlm.language import RoPE

DIMS = 16


def main() -> int:
    rope = RoPE(DIMS)
    mx.random.seed(0)
    x = mx.random.normal((2, 1, 1, DIMS))
    offsets = [9, 4]
    got = rope(x, offset=mx.array(offsets))
    wrong = 0
    print(f"mlx-vlm {version('mlx-vlm')}, jina_vlm: a decode step of rows of 9 and 4 tokens")
    for row, offset in enumerate(offsets):
        want = rope(x[row : row + 1], offset=offset)
        apart = mx.abs(got[row] - want[0]).max().item()
        wrong += apart > 1e-5
        print(f"row of {offset}: rotated against alone, expected 0, got {apart:.3g} apart")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
