"""deepseek_v3: one rounding of a router's logit chooses another expert.

group_expert_select (mlx_vlm/models/deepseek_v3/language.py:173) takes the experts with the largest
scores. Where two scores are nearer to each other than bfloat16 can say, whatever rounds otherwise,
such as a product of more rows, chooses another one, and the layer's output is that of another
expert. That is so in every model with experts, and no defect of a batch; in float32 such a tie is
65,536 times as rare. Here two of eight logits are moved by one unit in their last place.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.deepseek_v3.language import group_expert_select

UNIT = 2**-7  # of bfloat16, from 1 to 2
LOGITS = [0.25, -1.0, 1.0, 0.5, -0.5, 0.0, 1.0 + UNIT, 1.5]
TOP = 2


def chosen(logits: list[float]) -> list[int]:
    gates = mx.array([logits], mx.bfloat16)
    experts, _ = group_expert_select(gates, mx.zeros(len(logits)), TOP, 1, 1, 1.0, True)
    return sorted(experts[0].tolist())


def main() -> int:
    moved = [*LOGITS]
    moved[2] += UNIT
    moved[6] -= UNIT
    before, after = chosen(LOGITS), chosen(moved)
    print(f"mlx-vlm {version('mlx-vlm')}: the {TOP} experts of one token")
    print(f"expected the same, as the logits are within rounding; got {before} and {after}")
    return 1 if before != after else 0


if __name__ == "__main__":
    sys.exit(main())
