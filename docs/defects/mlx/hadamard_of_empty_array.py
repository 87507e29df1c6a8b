"""mx.hadamard_transform of an array without rows ends the process on CUDA: a division by zero.

mlx_vlm/models/prism_hadamard_qwen35/prism_hadamard_qwen35.py:18 calls it for each piece of a prompt.
Where none of the tokens is left, the process gets SIGFPE, which no Python code can handle. A CPU gives
an array without rows. It is tried in a process of its own.
"""

import signal
import subprocess
import sys

import mlx.core as mx


def attempt() -> None:
    out = mx.hadamard_transform(mx.zeros((0, 32)), scale=1.0)
    mx.eval(out)
    print(f"shape {out.shape}")


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    done = subprocess.run([sys.executable, __file__, "try"], capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
    end = f"exit code {done.returncode}"
    if done.returncode < 0:
        end = f"signal {signal.Signals(-done.returncode).name}"
    print(
        f"mlx {mx.__version__}: mx.hadamard_transform of shape (0, 32): expected shape (0, 32); "
        f"got {said[-1]!r}, {end}"
    )
    return 1 if done.returncode else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        attempt()
    else:
        sys.exit(main())
