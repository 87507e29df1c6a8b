"""A request with top_p draws from other tokens on mlx_vlm.server than by mlx-vlm's own sampler.

The server takes the nucleus of what top_k leaves, at the temperature
(mlx_vlm/server/generation.py:157, sample_utils.py:505). make_sampler, by which the library and its
command line generate, takes it first, of all tokens at temperature 1 (sample_utils.py:82), then
top_k (line 91). With typical_p, p_less or top_n_sigma the same server goes by make_sampler.

Probabilities 0.4, 0.25, 0.15, 0.1, 0.06, 0.04; 4,000 draws of each. Exit code 1 while the tokens
that are drawn differ.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.sample_utils import make_sampler
from mlx_vlm.server.generation import _PositionedTargetSampler

PROBS = (0.4, 0.25, 0.15, 0.1, 0.06, 0.04)
DRAWS = 4000
REQUESTS = (
    {"temperature": 1.0, "top_p": 0.6, "top_k": 2},
    {"temperature": 0.5, "top_p": 0.6, "top_k": 0},
    {"temperature": 4.0, "top_p": 0.6, "top_k": 0},
    {"temperature": 1.0, "top_p": 0.6, "top_k": 0},
)


def shares(tokens: mx.array) -> list[float]:
    return [round((tokens == token).sum().item() / DRAWS, 2) for token in range(len(PROBS))]


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: shares of {DRAWS} draws of tokens with {PROBS}")
    wrong = False
    rows = mx.broadcast_to(mx.log(mx.array(PROBS)), (DRAWS, len(PROBS)))
    for request in REQUESTS:
        mx.random.seed(0)
        options = {"temp" if name == "temperature" else name: v for name, v in request.items()}
        library = shares(make_sampler(**options)(rows))
        sampler = _PositionedTargetSampler(**request, seed=0)
        server = shares(
            sampler.sample_target(rows, row_ids=[0] * DRAWS, positions=list(range(DRAWS)))
        )
        differ = [(one > 0) != (other > 0) for one, other in zip(library, server, strict=True)]
        wrong |= any(differ)
        named = ", ".join(f"{name} {value}" for name, value in request.items())
        print(f"{named}: library {library}, server {server}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
