"""batch_generate: models that put images into embeddings as if there were one prompt.

batch_generate embeds prompts with images of one size together. internvl_chat
(mlx_vlm/models/internvl_chat/internvl_chat.py:101) and kimi_k25 (kimi_k25.py:121) take the columns
of the image tokens of all rows and write all features into each row. paligemma's vision encoder
(paligemma/vision.py:49) returns the first image only. Fixed by a merge that goes row by row, as
pixtral's.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.models.internvl_chat import internvl_chat
from mlx_vlm.models.kimi_k25 import kimi_k25
from mlx_vlm.models.paligemma import vision

IDS = mx.array([[0, 9, 9, 5], [9, 9, 6, 7]])  # 9: an image of two places in each row
FEATURES = mx.array([[[1.0], [2.0]], [[3.0], [4.0]]])
WANT = [[0.0, 1.0, 2.0, 0.0], [3.0, 4.0, 0.0, 0.0]]
CONFIG = SimpleNamespace(image_token_index=9, video_token_index=8)


def internvl() -> list:
    model = SimpleNamespace(config=CONFIG)
    merge = internvl_chat.Model._merge_input_ids_with_image_features
    return merge(model, FEATURES, mx.zeros((2, 4, 1)), IDS)[..., 0].tolist()


def kimi() -> list:
    model = SimpleNamespace(config=CONFIG)
    merge = kimi_k25.Model._prepare_inputs_for_multimodal
    return merge(model, FEATURES.reshape(4, 1), mx.zeros((2, 4, 1)), IDS)[..., 0].tolist()


def paligemma() -> list:
    encoder = SimpleNamespace(layers=[lambda x, mask: x])
    return vision.Encoder.__call__(encoder, FEATURES)[0].tolist()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: features of two images, [1, 2] and [3, 4], in two rows")
    wrong = 0
    for name, play, want in (
        ("internvl_chat", internvl, WANT),
        ("kimi_k25", kimi, WANT),
        ("paligemma, out of the encoder", paligemma, FEATURES.tolist()),
    ):
        got = play()
        wrong += got != want
        print(f"{name}: expected {want}, got {got}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
