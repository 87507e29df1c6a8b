"""An argument that is a list is taken from the first row of a prefill that has it.

mlx_vlm/generate/ar.py:843-844 merges arrays only; of lists, as qwen3_vl's deepstack features are
(mlx_vlm/models/qwen3_vl/vision.py:424), the first row's stands for the whole batch: the images of
all other rows get none of theirs, or the first one's. Mended by features that are aligned with the
tokens, as qwen3_omni_moe gives them.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate import ar


def row(value: float) -> dict:
    return {
        "inputs_embeds": mx.zeros((1, 4, 8)),
        "visual_pos_masks": mx.array([[False, True, True, False]]),
        "deepstack_visual_embeds": [mx.full((2, 8), value)],
    }


def main() -> int:
    _, together = ar._merge_prefill_prompt_kwargs([row(1.0), row(2.0)], [[1] * 4] * 2)
    places = int(together["visual_pos_masks"].sum().item())
    features = together["deepstack_visual_embeds"][0]
    print(f"mlx-vlm {version('mlx-vlm')}: two prompts, each an image of two places")
    print(f"image places in the batch: {places}; expected as many features, got {len(features)}")
    print(f"features of rows: expected 1 and 2, got {sorted(set(features[:, 0].tolist()))}")
    return 1 if len(features) != places else 0


if __name__ == "__main__":
    sys.exit(main())
