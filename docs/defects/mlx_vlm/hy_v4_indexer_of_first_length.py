"""hy_v4's indexer takes its best keys at the place where they lay in the first call.

mlx_vlm/models/hy_v4/indexer.py:11 compiles the selection with ``shapeless=True``. The negative
``kth`` of argpartition (line 19) is turned into a place from the left when the function is traced,
and kept for all widths: with more keys than in the first call the last ``top_k`` columns of the
result (line 48) are no longer the best ones. What a prompt attends to so depends on the length of
the first prompt that the process saw. Mended by compiling for each shape, or by partitioning the
negated scores at ``top_k - 1``.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.hy_v4.indexer import _partition_scores

TOP = 4


def main() -> int:
    mx.random.seed(0)
    print(f"mlx-vlm {version('mlx-vlm')}, hy_v4: the {TOP} best keys of one query")
    wrong = False
    for width in (8, 12, 24):
        q, k = mx.random.normal((1, 2, 1, 8)), mx.random.normal((1, 1, width, 8))
        weights = mx.ones((1, 1, 2))
        scores = mx.maximum(q @ k.swapaxes(-1, -2), 0).sum(axis=1)[0, 0]
        right = sorted(mx.argsort(scores)[-TOP:].tolist())
        got = sorted(_partition_scores(TOP, False)(q, k, weights)[0, 0, 0, -TOP:].tolist())
        print(f"of {width}: expected {right}, got {got}")
        wrong = wrong or got != right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
