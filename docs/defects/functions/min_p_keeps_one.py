"""mlx-vlm's min_p raises where more than one token must be kept.

mlx_vlm/sample_utils.py:289 gives put_along_axis False, where it takes arrays alone.
Fixed by mx.array(False), as in mlx-lm.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.sample_utils import apply_min_p


def main() -> int:
    logprobs = mx.log(mx.array([[0.7, 0.2, 0.1]]))
    print(f"mlx-vlm {version('mlx-vlm')}: expected two tokens of three to be kept")
    try:
        kept = mx.isfinite(apply_min_p(logprobs, 0.9, 2)).tolist()
    except TypeError as error:
        print(f"TypeError: {str(error).splitlines()[0]}")
        return 1
    print(f"kept: {kept}")
    return 0 if kept == [[True, True, False]] else 1


if __name__ == "__main__":
    sys.exit(main())
