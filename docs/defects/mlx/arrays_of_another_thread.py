"""With two GPUs to see, an array that another thread computed can't be read.

The thread that makes the first array makes the allocator, which makes a stream on each GPU: so the
last GPU is that thread's current one. Until it evaluates something itself, it copies arrays of
the first GPU from there (mlx/backend/cuda/allocator.cpp, move_to_unified_memory, calls cudaMemcpy
without make_current), which is an invalid argument. A server that decodes in a thread of its own
does so. Fixed by making the buffer's GPU the current one before the copy; with one GPU to see
(CUDA_VISIBLE_DEVICES=0) all is right. Each reader is tried in a process of its own.
"""

import subprocess
import sys
import threading

import mlx.core as mx

ROWS = 64


def computed(x):
    """Twice ``x``, computed in another thread."""
    box = []

    def work():
        box.append(x * 2)
        mx.eval(box)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return box[0]


def after_own_work():
    x = mx.array([1.0] * ROWS)
    mx.eval(x + 1)
    return computed(x).tolist()


def at_first():
    return computed(mx.array([1.0] * ROWS)).tolist()


READERS = (after_own_work, at_first)


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: with two GPUs to see; a CPU and Metal are not concerned")
        return 2
    wrong = 0
    for reader in READERS:
        command = [sys.executable, __file__, reader.__name__]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        wrong += done.returncode != 0
        print(f"{reader.__name__}: expected right; got {(said or ['nothing'])[-1]}")
    print(f"mlx {mx.__version__}: {wrong} of {len(READERS)} readers fail")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        right = globals()[sys.argv[1]]() == [2.0] * ROWS
        print("right" if right else "wrong numbers")
    else:
        sys.exit(main())
