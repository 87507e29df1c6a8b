"""Writing into a part of an array without elements leaves it without data on CUDA.

SliceUpdate::eval_gpu (mlx/backend/cuda/indexing.cpp) returns at once where there is nothing to
write, before the output has a buffer: who reads the array's data later, such as mx.contiguous or
mx.save_safetensors, ends the process with SIGSEGV. A cache whose values have no columns is written
so with each token (mlx_lm/models/cache.py:368; the keys of minimax_m3_vl's indexer), and cannot be
saved. On a CPU it is right. Fixed by giving the output the buffer of the input, as is done where
only the update is empty. It is tried in a process of its own.
"""

import signal
import subprocess
import sys

import mlx.core as mx

SHAPE = (1, 1, 256, 0)
PART = 4


def written() -> None:
    values = mx.zeros(SHAPE)
    values[..., :PART, :] = mx.zeros((1, 1, PART, 0))
    mx.eval(values)
    mx.eval(mx.contiguous(values))
    print(f"shape {values.shape}")


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    command = [sys.executable, __file__, "written"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    got = (done.stdout or done.stderr).strip().splitlines() or ["nothing"]
    if done.returncode < 0:
        got = [f"the end of the process, {signal.Signals(-done.returncode).name}"]
    print(f"mlx {mx.__version__}: expected shape {SHAPE}; got {got[-1]}")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        written()
    else:
        sys.exit(main())
