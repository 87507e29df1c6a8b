"""deepseek_v41 rounds activations to fp8: noise before it becomes a step behind it.

mlx_vlm/models/deepseek_v41/fakequant.py:134 rounds each block of 32 to three bits of mantissa, as
the model was trained. It is meant so. But of values that differ in their last bit, as products of
one row and of several do on CUDA, some are rounded to neighbours that are 6 to 12 % apart: the
logprobs of a row depend on how many rows there are. Nothing in the batch is wrong.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.deepseek_v41.fakequant import fake_quant_fp8_ue8m0


def main() -> int:
    mx.random.seed(0)
    values = mx.random.normal((1 << 16, 64))
    moved = values * (1 + 2.0**-22)
    rounded, other = fake_quant_fp8_ue8m0(values), fake_quant_fp8_ue8m0(moved)
    apart = mx.abs(other - rounded) / mx.maximum(mx.abs(rounded), 1e-6)
    steps = int((apart > 0.01).sum().item())
    print(
        f"mlx-vlm {version('mlx-vlm')}: {steps} of {values.size} values that differ by 2.4e-07 are "
        f"up to {100 * apart.max().item():.0f} % apart once they are rounded"
    )
    return 1 if steps else 0


if __name__ == "__main__":
    sys.exit(main())
