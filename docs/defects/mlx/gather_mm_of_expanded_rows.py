"""mx.gather_mm with sorted indices takes wrong rows on CUDA where expand_dims made their axis.

mx.expand_dims gives the new axis the stride 1. mlx/backend/cuda/matmul.cpp,
ensure_batch_contiguous, hands the stride of this axis on as the distance between rows: only the
first row of each expert is right. The sum `x + mx.expand_dims(self["bias"][indices], -2)` of
mlx_lm/models/switch_layers.py:147 has such strides when the buffer of x may not be used again
(gpt_oss). On a CPU and on Metal the result is right. Fixed by taking the number of columns for the
distance.
"""

import sys

import mlx.core as mx

EXPERTS, ROWS, DEPTH, WIDTH = 4, 80, 96, 64


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    rows = mx.random.normal((ROWS, DEPTH))
    weights = mx.random.normal((EXPERTS, WIDTH, DEPTH)).swapaxes(-1, -2)
    experts = mx.sort(mx.random.randint(0, EXPERTS, (ROWS,)).astype(mx.uint32))
    mx.eval(rows, weights, experts)
    expected = mx.matmul(rows[:, None], weights[experts])
    bad = 0
    for name, given in {
        "reshape": rows.reshape(ROWS, 1, DEPTH),
        "expand_dims": mx.expand_dims(rows, 1),
    }.items():
        got = mx.gather_mm(given, weights, rhs_indices=experts, sorted_indices=True)
        wrong = int((mx.abs(got - expected).max(axis=(1, 2)) > 1e-2).sum().item())
        print(f"mlx {mx.__version__}: axis of one by {name}: {wrong} of {ROWS} rows are wrong")
        bad += wrong
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
