"""A policy for quantized keys and values does not come back of its own config.

mlx_vlm/kv_quant.py:52 (to_config) writes the scheme of the keys as that of the policy. For 3.5 bits
with uniform keys of 3 and uniform values of 4 bits that is another policy. Fixed by
writing key_scheme and value_scheme wherever they are not what bits alone give.
"""

import sys
from importlib.metadata import version

from mlx_vlm.kv_quant import from_config, from_legacy


def main() -> int:
    policy = from_legacy(3.5, None, 32, 3, 4, "uniform", "uniform")
    print(f"mlx-vlm {version('mlx-vlm')}: expected {policy}")
    try:
        again = from_config(policy.to_config())
    except ValueError as error:
        print(f"ValueError: {error}")
        return 1
    print(f"from its config {policy.to_config()}: {again}")
    return 0 if again == policy else 1


if __name__ == "__main__":
    sys.exit(main())
