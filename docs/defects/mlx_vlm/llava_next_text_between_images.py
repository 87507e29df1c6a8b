"""llava_next drops text between images: its features are fewer than its image tokens.

The processor writes several image tokens for a tile, mlx_vlm/models/llava_next/llava_next.py:67
takes the tiles of the first image only, and the zip of line 118 ends with the last tile: text that
stands between later image tokens gets no embedding, in a single stream as in a batch. With
the tokens that have no tile taken out before, no text is lost.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.llava_next.llava_next import Model

WIDTH, PATCHES, IMAGE = 4, 1, 9


class Bare(Model):
    """The model's own merging of embeddings, without its towers."""

    def __init__(self):
        nn.Module.__init__(self)
        self.config = SimpleNamespace(image_token_index=IMAGE)


def main() -> int:
    print(
        f"mlx-vlm {version('mlx-vlm')}, llava_next: text 1, 2, 3 around two image tokens, one tile"
    )
    ids = mx.array([[1, IMAGE, 2, IMAGE, 3]])
    embeds = mx.broadcast_to(ids[..., None], (1, 5, WIDTH)).astype(mx.float32)
    tiles = mx.zeros((1, PATCHES, WIDTH))
    made = Bare()._merge_input_ids_with_image_features(tiles, embeds, ids)
    found = [value for value in made[0, :, 0].tolist() if value]
    print(f"embeddings of text: expected [1.0, 2.0, 3.0], got {found}")
    return int(found != [1.0, 2.0, 3.0])


if __name__ == "__main__":
    sys.exit(main())
