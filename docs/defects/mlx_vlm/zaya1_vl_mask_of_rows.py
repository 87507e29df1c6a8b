"""zaya1_vl: an image beside any other request ends the prefill.

Where the image mask is not as long as the piece of the prompt, as when not all rows have one
(mlx_vlm/generate/ar.py:833), mlx_vlm/models/zaya1_vl/language.py:680 takes the cache's offset for
one number; in a batch it is an array. Mended by ``cache_position_offset`` (models/base.py:263),
which gives the columns that are done; the missing rows of the mask need mending too.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.models.zaya1_vl.language import LanguageModel


def main() -> int:
    cache = BatchKVCache([0, 3])
    seen = []
    model = SimpleNamespace(
        model=lambda *given: seen.append(given[3].shape) or mx.zeros((2, 4, 8)),
        args=SimpleNamespace(tie_word_embeddings=False),
        lm_head=lambda x: x,
    )
    print(f"mlx-vlm {version('mlx-vlm')}, zaya1_vl: first 4 of 7 columns, two rows, one image mask")
    try:
        mask = mx.zeros((1, 7), mx.bool_)
        LanguageModel.__call__(
            model, mx.zeros((2, 4), mx.int32), cache=[[cache, None]], visual_pos_masks=mask
        )
    except (ValueError, TypeError) as error:
        print(f"expected: a mask of 4 columns; got {type(error).__name__}: {error}")
        return 1
    print(f"mask: {seen[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
