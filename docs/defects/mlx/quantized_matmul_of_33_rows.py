"""mx.quantized_matmul of over 32 rows in float32, in groups of 128, cannot start on CUDA.

mlx/backend/cuda/quantized/qmm/qmm_naive.cu makes tiles of 64 rows and 64 columns by 128 for it: 64
KiB of shared memory. More than 48 KiB must be asked for
(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, as qmm_sm80.cu and qmm_sm90.cu do), else the
kernel is refused: cuGraphAddKernelNode ... invalid argument. Up to 32 rows it is 48 KiB. On a CPU
and on Metal the result is right.
"""

import sys

import mlx.core as mx


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    weights = mx.quantize(mx.random.normal((512, 128)), group_size=128, bits=2)
    refused = []
    for rows in (32, 33):
        x = mx.random.normal((rows, 128))
        try:
            mx.eval(mx.quantized_matmul(x, *weights, transpose=True, group_size=128, bits=2))
            said = "right"
        except RuntimeError as error:
            refused.append(rows)
            said = str(error)
        print(f"mlx {mx.__version__}, {rows} rows: {said}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
