"""qwen3_vl: a prefill piece that begins inside an image gets the image's first deep features.

The batch generator cuts visual_pos_masks into pieces (mlx_vlm/generate/ar.py:2122, 2184), but not
deepstack_visual_embeds, which is a list. The model would cut them (mlx_vlm/models/qwen3_vl/
language.py:521), but only where the mask is as long as the whole prompt; so _deepstack_process
(:259) begins with the first feature in each piece. The same in qwen3_vl_moe. Mended by features
that are aligned with the tokens, as qwen3_omni_moe gives them.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate import ar
from mlx_vlm.models import qwen3_vl, qwen3_vl_moe

PROMPT = {
    "visual_pos_masks": mx.array([[False, False, True, True, True, True, False, False]]),
    "deepstack_visual_embeds": [mx.array([[1.0], [2.0], [3.0], [4.0]])],
}
WANT = [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0]


def added(model: type, step: int) -> list[float]:
    """What the model adds to each place of a prompt that the generator cuts into pieces."""
    places = []
    for start in range(0, 8, step):
        piece = dict(PROMPT)
        for key, value in PROMPT.items():
            if isinstance(value, mx.array) and ar._is_sequence_aligned_prompt_kwarg(key, value, 8):
                piece[key] = ar._slice_sequence_aligned_prompt_kwarg(
                    key, value, start=start, stop=start + step
                )
        features = piece["deepstack_visual_embeds"][0]
        empty = mx.zeros((1, step, 1))
        got = model._deepstack_process(None, empty, piece["visual_pos_masks"], features)
        places += got[0, :, 0].tolist()
    return places


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: deep features of an image's four places are 1, 2, 3, 4")
    wrong = 0
    for name, model in (
        ("qwen3_vl", qwen3_vl.language.Qwen3VLModel),
        ("qwen3_vl_moe", qwen3_vl_moe.language.Qwen3VLMoEModel),
    ):
        for step in (8, 4):
            got = added(model, step)
            wrong += got != WANT
            print(f"{name}, pieces of {step}: expected {WANT}, got {got}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
