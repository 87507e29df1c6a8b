"""mlx-vlm's processor of llava refuses every image: it gives an option of texts to images, too.

mlx_vlm/utils.py:1766 calls each processor with ``padding=True``, and
mlx_vlm/models/llava/processing_llava.py:90 hands all such options on to the image processor. That
of transformers 5.23 refuses those that it does not know. With the option given to the tokenizer
alone there are pixels.
"""

import sys
from importlib.metadata import version

import transformers
from mlx_vlm.models.llava.processing_llava import LlavaProcessor
from mlx_vlm.utils import process_inputs
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

WORDS = {"a": 0, "b": 1, "<image>": 2, "<pad>": 3}


def made() -> LlavaProcessor:
    words = Tokenizer(WordLevel(WORDS, unk_token="a"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
    side = {"height": 16, "width": 16}
    images = transformers.CLIPImageProcessor(size=side, crop_size=side)
    return LlavaProcessor(images, tokenizer, patch_size=8, vision_feature_select_strategy="full")


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, transformers {version('transformers')}, llava: one image")
    try:
        found = process_inputs(made(), ["a <image> b"], images=[Image.new("RGB", (16, 16))])
    except TypeError as error:
        print(f"expected pixels, got TypeError: {error}")
        return 1
    print(f"pixels of shape {found['pixel_values'].shape}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
