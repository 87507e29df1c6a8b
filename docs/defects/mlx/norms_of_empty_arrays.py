"""mx.fast.rms_norm and mx.fast.layer_norm of an array without rows fail on CUDA.

A CPU gives an array without rows, as all elementwise operations do. A model gets one where no token is
left of a piece of a prompt. What they would have to do first is return if there is nothing to compute.
Each is tried in a process of its own, as the failure may stay with the device.
"""

import subprocess
import sys

import mlx.core as mx

KINDS = ("rms_norm", "layer_norm")


def attempt(kind: str) -> None:
    nothing, weight = mx.zeros((1, 0, 64)), mx.ones(64)
    if kind == "rms_norm":
        out = mx.fast.rms_norm(nothing, weight, 1e-5)
    else:
        out = mx.fast.layer_norm(nothing, weight, weight, 1e-5)
    mx.eval(out)
    mx.synchronize()
    mx.eval(mx.ones(1) + 1)  # whether the device goes on
    print(f"shape {out.shape}")


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    failed = 0
    for kind in KINDS:
        done = subprocess.run([sys.executable, __file__, kind], capture_output=True, text=True)
        said = (done.stdout + done.stderr).strip().splitlines() or [""]
        print(
            f"mlx {mx.__version__}: mx.fast.{kind} of shape (1, 0, 64): expected shape (1, 0, 64); "
            f"got {said[-1]!r}, exit code {done.returncode}"
        )
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        attempt(sys.argv[1])
    else:
        sys.exit(main())
