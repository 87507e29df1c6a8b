"""mx.quantized_matmul on CUDA refuses shapes that do not fill its tiles.

mlx_vlm/models/base.py:352 multiplies queries with quantized keys, transposed: those of a short
prompt, with heads of 32 values in one group of 32. On CUDA that is "No implementation for problem
shape". A CPU multiplies every shape: the product with the dequantized matrix.
"""

import sys

import mlx.core as mx


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    mx.random.seed(0)
    refused, wrong, tried = [], [], 0
    for group in (32, 64, 128):
        for keys in (1, 4, 16, 64):
            for transpose in (True, False):
                tried += 1
                inner = max(group, 32)
                matrix = mx.random.normal((keys, inner))
                packed = mx.quantize(matrix, group_size=group, bits=8)
                whole = mx.dequantize(*packed, group_size=group, bits=8)
                given = mx.random.normal((1, inner if transpose else keys))
                name = f"1x{given.shape[1]} with {keys}x{inner}, group {group}, {transpose=}"
                try:
                    got = mx.quantized_matmul(
                        given, *packed, transpose=transpose, group_size=group, bits=8
                    )
                    expected = given @ (whole.T if transpose else whole)
                    worst = mx.abs(got - expected).max().item()
                except RuntimeError as error:
                    refused.append(f"{name}: {error}")
                    continue
                if not worst < 1e-2 * mx.abs(expected).max().item() + 1e-3:
                    wrong.append(f"{name}: off by {worst:.3g}")
    for line in (*refused[:5], *wrong[:5]):
        print(f"mlx {mx.__version__}: {line}")
    print(f"of {tried} shapes {len(refused)} are refused, and {len(wrong)} are wrong")
    return 1 if refused or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
