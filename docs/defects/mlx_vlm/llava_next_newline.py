"""llava_next fails for every image in bfloat16: the newline of images goes through NumPy.

mlx_vlm/models/llava_next/llava_next.py:88 makes ``self.image_newline`` a NumPy array, and NumPy
has no bfloat16. With ``mx.broadcast_to(self.image_newline, image_features.shape)`` the same tokens
are made in every dtype.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.llava_next.llava_next import Model

WIDTH, PATCHES, IMAGE = 4, 3, 9


class Bare(Model):
    """The model's own embedding of an image, with a tower that gives ones."""

    def __init__(self, dtype):
        nn.Module.__init__(self)
        self.config = SimpleNamespace(image_token_index=IMAGE)
        self.vision_feature_layer = -1
        self.vision_feature_select_strategy = "full"
        self.image_newline = mx.ones((WIDTH,), dtype)
        states = [mx.ones((1, PATCHES, WIDTH), dtype)]
        self.vision_tower = lambda *_, **__: (None, states)
        self.multi_modal_projector = lambda features: features
        embed = nn.Embedding(IMAGE + 1, WIDTH)
        embed.set_dtype(dtype)
        self.language_model = SimpleNamespace(model=SimpleNamespace(embed_tokens=embed))


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, llava_next: one image, embedded in two dtypes")
    bad = 0
    for dtype in (mx.float16, mx.bfloat16):
        try:
            found = Bare(dtype).get_input_embeddings(
                mx.array([[1, IMAGE, 2]]), mx.zeros((1, 1, 3, 8, 8), dtype)
            )
            print(f"{dtype}: embeddings of shape {found.inputs_embeds.shape}")
        except ValueError as error:
            print(f"{dtype}: expected embeddings, got ValueError: {error}")
            bad += 1
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
