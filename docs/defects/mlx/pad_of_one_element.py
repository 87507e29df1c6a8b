"""mx.pad of an array with one element gives garbage on CUDA.

mlx_vlm/models/youtu_vl/vision.py:333 puts a zero before the cumulative sums of the images' lengths;
with one image that is an array with one element. The garbage is taken for the place where an image
begins, and what is read from there ends in an illegal memory access. On a CPU the result is right.
"""

import sys

import mlx.core as mx

ROUNDS = 20


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    wrong = []
    for size in (1, 2, 3):
        for kind in (mx.int32, mx.float32):
            for _ in range(ROUNDS):
                mx.eval(mx.full((64,), 1e9, kind))  # freed at once: what is not written shows
                given = mx.arange(7, 7 + size).astype(kind)
                got = mx.pad(given, (1, 0), mode="constant", constant_values=0).tolist()
                expected = [0, *given.tolist()]
                if got != expected:
                    wrong.append((size, kind, expected, got))
    for size, kind, expected, got in wrong[:3]:
        print(f"mlx {mx.__version__}: mx.pad of {size} element(s), {kind}: {expected}; got {got}")
    print(f"{len(wrong)} of {6 * ROUNDS} results are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
