"""One rounding of a router's logit chooses another expert.

group_expert_select (mlx_lm/models/glm4_moe.py:157, mlx_vlm/models/deepseek_v3/language.py:173)
takes the experts with the largest scores. Where two scores are nearer to each other than half
precision can say, whatever rounds otherwise, such as a product of more rows, chooses another one,
and the layer's output is that of another expert. That is so in every model with experts, and no
defect of a batch; in float32 such a tie is 8,192 times (of float16) or 65,536 times (of bfloat16)
as rare. Here two of eight logits are moved by one unit in their last place.
"""

import importlib
import sys
from importlib.metadata import version

import mlx.core as mx

MODELS = {
    "mlx-lm": ("mlx_lm.models.glm4_moe", mx.float16, 2**-10),
    "mlx-vlm": ("mlx_vlm.models.deepseek_v3.language", mx.bfloat16, 2**-7),
}
TOP = 2


def chosen(module: str, dtype: mx.Dtype, logits: list[float]) -> list[int]:
    select = importlib.import_module(module).group_expert_select
    experts, _ = select(mx.array([logits], dtype), mx.zeros(len(logits)), TOP, 1, 1, 1.0, True)
    return sorted(experts[0].tolist())


def main() -> int:
    other = 0
    for library, (module, dtype, unit) in MODELS.items():
        logits = [0.25, -1.0, 1.0, 0.5, -0.5, 0.0, 1.0 + unit, 1.5]
        moved = [*logits]
        moved[2] += unit
        moved[6] -= unit
        before, after = chosen(module, dtype, logits), chosen(module, dtype, moved)
        other += before != after
        print(f"{library} {version(library)}, {module}: the {TOP} experts of one token in {dtype}")
        print(f"expected the same, as the logits are within rounding; got {before} and {after}")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
