"""SuScaledRoPE chooses between short and long factors anew in each call, and for all rows at once.

mlx_vlm/models/rope_utils.py:171 asks whether the *longest* row ends beyond
original_max_position_embeddings in this call. So a short row is rotated with the long factors
beside a long one, after keys of its own that have the short ones; and a stream that passes the
limit keeps keys with the short ones, so that what it answers depends on the pieces that it was
prefilled in. Used by phi3, phimoe and minicpm3. Mended by a choice that stays for a whole request
(with its keys rotated anew where it changes), row by row.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.rope_utils import SuScaledRoPE

LIMIT = 16


def main() -> int:
    mx.random.seed(0)
    rope = SuScaledRoPE(
        8,
        max_position_embeddings=64,
        original_max_position_embeddings=LIMIT,
        short_factor=[1.0] * 4,
        long_factor=[1.0, 1.2, 1.6, 2.2],
    )
    token = mx.random.normal((2, 1, 1, 8))
    alone = rope(token[1:], offset=mx.array([5]))
    beside = rope(token, offset=mx.array([20, 5]))[1:]
    prompt = mx.random.normal((1, 1, LIMIT + 4, 8))
    whole = rope(prompt)
    first = rope(prompt[:, :, :LIMIT])
    found = {
        "position 5 beside a row at 20, against alone": mx.abs(beside - alone).max().item(),
        f"the first {LIMIT} keys of {LIMIT + 4}, in pieces against at once": (
            mx.abs(first - whole[:, :, :LIMIT]).max().item()
        ),
    }
    print(f"mlx-vlm {version('mlx-vlm')}: SuScaledRoPE with a limit of {LIMIT}")
    for what, apart in found.items():
        print(f"{what}: expected 0, got {apart:.3g}")
    return 1 if max(found.values()) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
