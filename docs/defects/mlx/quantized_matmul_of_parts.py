"""mx.quantized_matmul on CUDA refuses a part of a stored matrix, whatever its shape.

mlx_vlm/models/base.py:352 multiplies queries with quantized keys, transposed: a cache gives it the
rows that are in use, of those that it has room for. On CUDA each kernel asks for contiguous
matrices (is_last_2_dims_row_contiguous in mlx/backend/cuda/quantized/qmm/qmm.cu), and no copy is
made of others: "No implementation for problem shape", of all shapes. The same rows as a matrix of
their own are multiplied. A CPU multiplies both. Fixed by a copy, as of the left side.
"""

import itertools
import sys

import mlx.core as mx

HEADS, STEP, KEYS = 4, 256, 22


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    mx.random.seed(0)
    refused = {False: 0, True: 0}
    said, tried = "", 0
    for group, rows in itertools.product((64, 128), (1, 22)):
        matrix = mx.random.normal((1, HEADS, STEP, group))
        given = mx.random.normal((1, HEADS, rows, group))
        packed = [part[..., :KEYS, :] for part in mx.quantize(matrix, group_size=group, bits=8)]
        tried += 1
        for own in refused:
            parts = [mx.contiguous(part) for part in packed] if own else packed
            try:
                mx.eval(
                    mx.quantized_matmul(given, *parts, transpose=True, group_size=group, bits=8)
                )
            except RuntimeError as error:
                refused[own] += 1
                said = said or str(error)
    print(f"mlx {mx.__version__}: {said}")
    print(
        f"of {tried} shapes {refused[False]} are refused; as matrices of their own {refused[True]}"
    )
    return 1 if refused[False] else 0


if __name__ == "__main__":
    sys.exit(main())
