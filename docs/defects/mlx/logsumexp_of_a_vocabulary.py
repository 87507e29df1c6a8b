"""logsumexp of a large vocabulary is off by 1e-4 on a CPU, and all logprobs of a step with it.

mlx/backend/cpu/logsumexp.cpp:62 adds up the exponentials of a row in one float32 for each lane of a
vector, and mlx's wheel for Linux has one lane. So 100,352 numbers are added up one after another,
and the rounding grows with their count. A GPU adds them up in parts. mlx's issue 488 asks for more
accurate sums; pull request 4387 makes those of the CPU's reduce so, and leaves logsumexp as it is.
Fixed by a sum in float64, or in parts.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
import numpy as np

SIZES = (256, 32_000, 100_352, 262_144)
# A result that is rounded once is off by half a unit in its last place.
UNITS = 8


def main() -> int:
    draw = np.random.default_rng(0)
    devices = [mx.Device(mx.DeviceType.cpu), mx.Device(mx.DeviceType.gpu)]
    wrong = 0
    for size in SIZES:
        row = draw.normal(0, 3, size).astype(np.float32)
        want = float(np.log(np.exp(row.astype(np.float64)).sum()))
        for device in filter(mx.is_available, devices):
            off = abs(mx.logsumexp(mx.array(row), stream=device).item() - want)
            wrong += off > UNITS * float(np.spacing(np.float32(want)))
            print(f"{size} numbers, {device}: expected {want:.7g}; off by {off:.2g}")
    print(f"mlx {version('mlx')}: {wrong} sums are more than {UNITS} units in the last place off")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
