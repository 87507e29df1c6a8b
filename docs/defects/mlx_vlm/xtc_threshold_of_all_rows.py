"""XTC: one threshold for all rows of a batch.

apply_xtc (mlx_vlm/sample_utils.py:377) takes the minimum over the likely tokens of all rows, and
removes from each row what is likelier than that. Where another row's least likely token is less
likely than a row's own, the row loses that token too, which it was to keep. Fixed by the minimum of
each row: min(axis=-1, keepdims=True), as mlx-lm has it (mlx_lm/sample_utils.py:258).
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.sample_utils import make_sampler

ROWS = mx.log(mx.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]))


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: two rows of logprobs, XTC with a threshold of 0.05")
    sampler = make_sampler(temp=1.0, xtc_probability=1.0, xtc_threshold=0.05)
    alone = [sampler(row[None]).item() for row in ROWS]
    # What is removed from the first row is seen where nothing is left of it: any token comes out.
    together = [sampler(ROWS).tolist() for _ in range(20)]
    others = sorted({rows[0] for rows in together} - {alone[0]})
    print(f"the first row alone: token {alone[0]}; beside the second: also {others}")
    print("expected: the same token, the least likely one above the threshold")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
