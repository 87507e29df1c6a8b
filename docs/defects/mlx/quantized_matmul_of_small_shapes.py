"""mx.quantized_matmul on CUDA refuses some short products.

mlx_vlm/models/base.py:352 multiplies queries with quantized keys, transposed: those of a short
prompt, taken out of their cache, with heads of 32 values in one group of 32. On CUDA that is "No
implementation for problem shape". A CPU multiplies every shape: the product with the dequantized
matrix.
"""

import itertools
import sys

import mlx.core as mx

HEADS, STEP = 4, 256


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    mx.random.seed(0)
    refused, wrong, tried = [], [], 0
    kinds = (mx.float32, mx.bfloat16)
    for kind, group, keys, rows in itertools.product(kinds, (32, 64, 128), (4, 22, 64), (1, 22)):
        matrix = mx.random.normal((1, HEADS, STEP, group)).astype(kind)
        # As a cache gives them: of what is stored the rows that are in use.
        packed = [part[..., :keys, :] for part in mx.quantize(matrix, group_size=group, bits=8)]
        given = mx.random.normal((1, HEADS, rows, group)).astype(kind)
        name = f"{kind}: {rows}x{group} with {keys}x{group}, in groups of {group}"
        tried += 1
        try:
            got = mx.quantized_matmul(given, *packed, transpose=True, group_size=group, bits=8)
            whole = mx.dequantize(*packed, group_size=group, bits=8)
            expected = given @ whole.swapaxes(-1, -2)
            worst = mx.abs(got - expected).max().item()
        except RuntimeError as error:
            refused.append(f"{name}: {error}")
            continue
        if not worst < 1e-1 * mx.abs(expected).max().item() + 1e-3:
            wrong.append(f"{name}: off by {worst:.3g}")
    for line in (*refused[:5], *wrong[:5]):
        print(f"mlx {mx.__version__}: {line}")
    print(f"of {tried} shapes {len(refused)} are refused, and {len(wrong)} are wrong")
    return 1 if refused or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
