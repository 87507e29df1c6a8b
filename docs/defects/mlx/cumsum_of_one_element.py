"""cumsum of one element with another stride than 1 writes over other arrays on CUDA.

mlx_vlm/models/youtu_vl/vision.py:328 multiplies two columns of an array and sums the products up.
With one image that is one element, and it keeps the stride of its column, 2. In
mlx/backend/cuda/scan.cu an axis whose stride is not 1 is taken for strided: of one element with the
stride s, s times s are written (get_2d_grid_dims rounds the grid up to the stride, and each block
writes as many columns as the stride counts). What lies behind the result is then what lies behind
the product. Arrays of up to 8 bytes lie side by side in one block of memory, so with a small stride
these are other arrays, of youtu_vl the padded sums, and an index from there ends in an illegal
memory access. With a large stride the writes leave the block, and the sum itself ends so. cumprod,
cummax and cummin do it, too. mlx's pull requests 4254 and 4430 bound what is written; the scan of a
CPU is right since 4139. Each sum is made in a process of its own: the device is lost to it.
"""

import subprocess
import sys

import mlx.core as mx

STRIDES = (2, 2048, 8192)
EXPECTED = [24]


def total(stride: int) -> list[int]:
    row = mx.array([[4, 6] + [0] * (stride - 2)], mx.int32)
    return (row[:, 0] * row[:, 1]).cumsum(axis=0).tolist()


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU is not concerned")
        return 2
    wrong = 0
    for stride in STRIDES:
        command = [sys.executable, __file__, str(stride)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        got = ((done.stdout + done.stderr).strip().splitlines() or ["nothing"])[-1]
        wrong += got != str(EXPECTED)
        written = stride * stride * 4
        print(f"stride {stride}, {written} bytes written: expected {EXPECTED}; got {got}")
    print(f"mlx {mx.__version__}: {wrong} of {len(STRIDES)} sums fail")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(total(int(sys.argv[1])))
    else:
        sys.exit(main())
