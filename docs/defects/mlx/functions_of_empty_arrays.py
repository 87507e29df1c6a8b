"""Functions of arrays without rows fail, or end the process, where there is nothing to compute.

A model calls them so where no token of a piece of a prompt is left. mx.quantized_matmul ends the
process with SIGFPE, a division by the number of rows: on a CPU, too. On CUDA mx.fast.rms_norm,
mx.fast.layer_norm, mx.fast.rope and mx.fast.scaled_dot_product_attention start a kernel with as
many blocks as there are rows (mlx/backend/cuda/rms_norm.cu), and none is an invalid launch. A
function of mx.compile ends the process with SIGFPE there: mlx/backend/cuda/kernel_utils.cu,
get_launch_args, divides by the size of a block, which is the number of elements.
mx.hadamard_transform refuses empty arrays in its own words, which is right. What would fix the
others is to return an empty array at once, as elementwise functions do. Each is called in a
process of its own, on the default device.
"""

import signal
import subprocess
import sys

import mlx.core as mx


def rms_norm():
    return mx.fast.rms_norm(mx.zeros((1, 0, 64)), mx.ones(64), 1e-5)


def layer_norm():
    return mx.fast.layer_norm(mx.zeros((1, 0, 64)), mx.ones(64), mx.ones(64), 1e-5)


def hadamard_transform():
    return mx.hadamard_transform(mx.zeros((1, 0, 64)), scale=1.0)


def rope():
    return mx.fast.rope(mx.zeros((1, 0, 64)), 64, traditional=False, base=1e4, scale=1.0, offset=0)


def scaled_dot_product_attention():
    keys = mx.ones((1, 1, 4, 64))
    found = mx.fast.scaled_dot_product_attention(mx.zeros((1, 1, 0, 64)), keys, keys, scale=1.0)
    return found.squeeze(0)


def scaled_dot_product_attention_in_half_precision():
    empty = mx.zeros((1, 1, 0, 64), mx.bfloat16)
    return mx.fast.scaled_dot_product_attention(empty, empty, empty, scale=1.0).squeeze(0)


def compiled():
    return mx.compile(lambda x: mx.sigmoid(x) * x)(mx.zeros((1, 0, 64)))


def quantized_matmul():
    packed = mx.quantize(mx.ones((64, 128)), group_size=128, bits=2)
    return mx.quantized_matmul(mx.zeros((1, 0, 128)), *packed, group_size=128, bits=2)


FUNCTIONS = (
    rms_norm,
    layer_norm,
    rope,
    scaled_dot_product_attention,
    scaled_dot_product_attention_in_half_precision,
    compiled,
    hadamard_transform,
    quantized_matmul,
)
EXPECTED = "shape (1, 0, 64)"


def attempt(function) -> str:
    try:
        out = function()
    except ValueError as error:  # of the call itself: mlx says that it does not do this
        return f"{EXPECTED} is refused: {error}"
    mx.eval(out)
    mx.synchronize()
    mx.eval(mx.ones(1) + 1)  # whether the device goes on
    return f"shape {out.shape}"


def main() -> int:
    wrong = 0
    for function in FUNCTIONS:
        command = [sys.executable, __file__, function.__name__]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        got = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        if done.returncode < 0:
            got = f"the end of the process, {signal.Signals(-done.returncode).name}"
        elif done.returncode:
            got = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        wrong += not got.startswith(EXPECTED)
        print(f"{function.__name__}: expected {EXPECTED}; got {got}")
    print(f"mlx {mx.__version__}, {mx.default_device()}: {wrong} of {len(FUNCTIONS)} fail")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(attempt(globals()[sys.argv[1]]))
    else:
        sys.exit(main())
