"""Sums of the patches of one image are garbage on CUDA, in some of several rounds.

mlx_vlm/models/youtu_vl/vision.py:328 multiplies two columns of an array, sums the products and
puts a zero before them. With one image each is one element with the stride 2, and the product, the
sum or the padded array is at times what its eight bytes held before; what is read from there ends
in an illegal memory access. With two images all is right. In mlx/backend/cuda/scan.cu (and in
Metal's scan.cpp) an axis of one element whose stride is not 1 is taken for strided, and as many
columns are written as the stride counts, over what lies behind the result. Whether that is all is
not proven. On a CPU the result is right.
"""

import sys

import mlx.core as mx

ROUNDS = 20


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU is not concerned")
        return 2
    wrong = []
    for kind in (mx.int32, mx.int64):
        for _ in range(ROUNDS):
            sides = mx.array([[4, 6]], kind)
            patches = sides[:, 0] * sides[:, 1]
            ends = mx.pad(patches.cumsum(axis=0).astype(mx.int32), (1, 0))
            got = (ends.tolist(), patches.tolist())
            if got != ([0, 24], [24]):
                wrong.append((kind, got))
    for kind, (ends, patches) in wrong[:3]:
        print(f"mlx {mx.__version__}, {kind}: [0, 24] of [24]; got {ends} of {patches}")
    print(f"{len(wrong)} of {2 * ROUNDS} results are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
