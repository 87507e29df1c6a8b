"""Rows are padded by their ids, where the embeddings of an image prompt are longer than those.

Some models (fastvlm, llava_bunny, llava_next, multi_modality, phi4_siglip, phi4mm) put many
embeddings in place of one image token. mlx_vlm/generate/ar.py:823 pads each row of embeddings by
what its ids lack to the longest prompt, so rows of embeddings have different lengths and the whole
prefill ends with a ValueError. (batch_generate embeds padded ids, and pads what comes out again.)
Mended by padding by the embeddings' own lengths, and ids alike.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate import ar


def main() -> int:
    image = {"inputs_embeds": mx.zeros((1, 20, 8))}  # 5 ids, one of them an image of 16 places
    text = {"inputs_embeds": mx.zeros((1, 9, 8))}
    print(f"mlx-vlm {version('mlx-vlm')}: 5 ids with 20 embeddings beside 9 ids with 9")
    try:
        embeds, _ = ar._merge_prefill_prompt_kwargs([image, text], [[1] * 5, [1] * 9])
    except ValueError as error:
        print(f"expected: two rows of 20 embeddings; got ValueError: {error}")
        return 1
    print(f"merged: {embeds.shape}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
