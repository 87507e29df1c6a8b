"""A sampler that refuses its argument leaves mx.random.state unusable for all that sample later.

mlx_lm/sample_utils.py:151 (apply_top_k), :185 (apply_min_p) and :249 (apply_xtc) check arguments
inside of functions that mx.compile traces with ``inputs=mx.random.state``. While it traces, the
state holds placeholders, and what is raised leaves them there. Fixed by checking first, in
functions around the compiled ones, as mlx-vlm does, or by mx.compile putting the state back.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.sample_utils import make_sampler

VOCAB = 8


def main() -> int:
    mx.random.seed(0)
    logprobs = mx.zeros((1, VOCAB))
    usual = make_sampler(temp=1.0)
    print(f"mlx-lm {version('mlx-lm')}, mlx {version('mlx')}")
    print(f"a request that samples: token {usual(logprobs).item()}")
    try:
        make_sampler(temp=1.0, top_k=VOCAB)(logprobs)
        print("a request with top_k of the whole vocabulary: accepted")
    except ValueError as error:
        print(f"a request with top_k of the whole vocabulary: ValueError: {error}")
    try:
        print(f"the next request that samples, expected a token: {usual(logprobs).item()}")
    except Exception as error:
        print(f"the next request that samples, expected a token: {type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
