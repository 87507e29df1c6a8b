"""Functions of arrays without rows fail on CUDA, where a CPU gives an array without rows.

mx.fast.rms_norm and mx.fast.layer_norm start a kernel with as many blocks as there are rows
(mlx/backend/cuda/rms_norm.cu): none is an invalid launch. A model calls them so where no token of a
piece of a prompt is left. What would fix it is to return where there is nothing to compute. Of
mx.hadamard_transform and mx.quantized_matmul it is asked, too: mlx-vlm's prism_hadamard_qwen35
calls both, and ended in a floating point exception there. Each is called in a process of its own.
"""

import signal
import subprocess
import sys

import mlx.core as mx


def rms_norm(stream):
    return mx.fast.rms_norm(mx.zeros((1, 0, 64)), mx.ones(64), 1e-5, stream=stream)


def layer_norm(stream):
    return mx.fast.layer_norm(mx.zeros((1, 0, 64)), mx.ones(64), mx.ones(64), 1e-5, stream=stream)


def hadamard_transform(stream):
    return mx.hadamard_transform(mx.zeros((0, 512)), scale=1.0, stream=stream)


def hadamard_transform_of_12(stream):
    return mx.hadamard_transform(mx.zeros((0, 12)), scale=1.0, stream=stream)


def quantized_matmul(stream):
    packed = mx.quantize(mx.ones((64, 128)), group_size=128, bits=2)
    given = mx.zeros((1, 0, 128))
    return mx.quantized_matmul(given, *packed, group_size=128, bits=2, stream=stream)


FUNCTIONS = (
    rms_norm,
    layer_norm,
    hadamard_transform,
    hadamard_transform_of_12,
    quantized_matmul,
)


def said(function, device) -> str:
    try:
        out = function(mx.default_stream(device))
        mx.eval(out)
        mx.synchronize()
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return f"shape {out.shape}"


def main() -> int:
    if not (hasattr(mx, "cuda") and mx.cuda.is_available()):
        print("this needs mlx on CUDA: a CPU and Metal are not concerned")
        return 2
    wrong = 0
    for function in FUNCTIONS:
        expected = said(function, mx.cpu)
        command = [sys.executable, __file__, function.__name__]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        got = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        if done.returncode:
            signalled = done.returncode < 0
            got = signal.Signals(-done.returncode).name if signalled else done.stderr.strip()[-200:]
        wrong += got != expected
        print(f"mlx {mx.__version__}: {function.__name__}: expected {expected!r}; got {got!r}")
    print(f"{wrong} of {len(FUNCTIONS)} functions fail")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(said(globals()[sys.argv[1]], mx.gpu))
    else:
        sys.exit(main())
