"""Dynamic NTK RoPE takes Python's ``max()`` of all rows' offsets.

mlx_lm/models/rope_utils.py:260: ``max(x.shape[-2] + offset, ...)``. A batch cache's offset is a
vector, one entry a row, and ``max`` wants the truth of a vector: every batch of two or more rows
fails, whatever their length (internlm3, and any model with rope type "dynamic"). Mended by a base
for each row; ``mx.maximum`` alone is not enough, as ``mx.fast.rope`` takes one base. Past
``max_position_embeddings`` the length must be the row's own too: ``x.shape[-2]`` counts padding.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models.rope_utils import initialize_rope

# Two of them past max_position_embeddings, where each row has a base of its own.
OFFSETS = [3, 10, 200, 500]


def main() -> int:
    mx.random.seed(0)
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    rope = initialize_rope(16, 1000.0, False, scaling, max_position_embeddings=64)
    x = mx.random.normal((len(OFFSETS), 2, 1, 16))  # [rows, heads, tokens, dims]
    want = mx.concatenate([rope(x[i : i + 1], offset=n) for i, n in enumerate(OFFSETS)])
    print(f"mlx-lm {version('mlx-lm')}: dynamic NTK RoPE of one token in {len(OFFSETS)} rows")
    print(f"row by row, offsets {OFFSETS}: {[round(v, 3) for v in want[:, 0, 0, 0].tolist()]}")
    try:
        got = rope(x, offset=mx.array(OFFSETS))
    except (ValueError, TypeError) as error:
        print(f"as one batch: expected the same, got {type(error).__name__}: {error}")
        return 1
    print(f"as one batch: {[round(v, 3) for v in got[:, 0, 0, 0].tolist()]}")
    return 1 if mx.abs(got - want).max().item() > 1e-4 else 0


if __name__ == "__main__":
    sys.exit(main())
