"""batch_generate: images of several prompts are taken for those of the first one.

mlx_vlm/utils.py:2060 hands the processor one flat list of images for a list of prompts. The
processors of pixtral (processing_pixtral.py:87) and mistral3 (processing_mistral3.py:98) take a
flat list for the images of one prompt: the second prompt's image token stays one token. Those of
gemma3 (processing_gemma3.py:76) and smolvlm (processing_smolvlm.py:175) do too, and refuse it.
Fixed by handing on a list of images for each prompt.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.models.gemma3.processing_gemma3 import make_nested_list_of_images
from mlx_vlm.models.mistral3.processing_mistral3 import Mistral3Processor
from mlx_vlm.models.pixtral.processing_pixtral import PixtralProcessor

IMAGE = mx.zeros((8, 8, 3), mx.uint8).__array__()
PROMPTS = ["[IMG] one", "[IMG] two"]


def places(processor: type) -> list[int]:
    """How many image tokens each of the two prompts becomes."""
    texts: list[str] = []

    def tokenizer(text: list[str], **_: object) -> dict:
        texts.extend(text)
        return {"input_ids": [[0], [0]]}

    def image_processor(images: list, **_: object) -> dict:
        return {"image_sizes": [(8, 8) for sample in images for _ in sample]}

    fake = SimpleNamespace(
        **{"image_token": "[IMG]", "image_break_token": "[BREAK]", "image_end_token": "[END]"},
        **{"patch_size": 4, "spatial_merge_size": 1},
        **{"tokenizer": tokenizer, "image_processor": image_processor},
    )
    processor.__call__(fake, images=[IMAGE, IMAGE], text=list(PROMPTS))
    return [text.count("[IMG]") for text in texts]


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: two prompts with an image each, as batch_generate asks")
    wrong = 0
    for name, processor in (("pixtral", PixtralProcessor), ("mistral3", Mistral3Processor)):
        got = places(processor)
        wrong += got[0] != got[1]
        print(f"{name}: image tokens expected [4, 4], got {got}")
    nested = [len(sample) for sample in make_nested_list_of_images([IMAGE, IMAGE])]
    print(f"gemma3, smolvlm: images of the prompts expected [1, 1], got {nested}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
