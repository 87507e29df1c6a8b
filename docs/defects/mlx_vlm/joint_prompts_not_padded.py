"""batch_generate: some processors drop padding, so prompts of other lengths are not put together.

The processors of llava_next (processing_llava_next.py:136), granite_vision
(processing_granite_vision.py:115), granite4_vision (processing_granite4_vision.py:109) and llama4
(processing_llama4.py:226) pop "padding" and tokenize without it. mlx_vlm/utils.py:2078 then makes
an array of rows of other lengths, which raises. Fixed by handing padding on to the tokenizer.
"""

import contextlib
import sys
from importlib.metadata import version
from types import SimpleNamespace

from mlx_vlm.models.granite4_vision.processing_granite4_vision import Granite4VisionProcessor
from mlx_vlm.models.granite_vision.processing_granite_vision import GraniteVisionProcessor
from mlx_vlm.models.llama4.processing_llama4 import Llama4Processor
from mlx_vlm.models.llava_next.processing_llava_next import LlavaNextProcessor


class CalledError(Exception):
    """The tokenizer was called, and its arguments are known."""


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: two prompts of other lengths, padding=True")
    wrong = 0
    for name, processor in (
        ("llava_next", LlavaNextProcessor),
        ("granite_vision", GraniteVisionProcessor),
        ("granite4_vision", Granite4VisionProcessor),
        ("llama4", Llama4Processor),
    ):
        given: dict = {}

        def tokenizer(_: list[str], given: dict = given, **kwargs: object) -> dict:
            given.update(kwargs)
            raise CalledError

        fake = SimpleNamespace(tokenizer=tokenizer, image_token="<image>")
        with contextlib.suppress(CalledError):
            processor.__call__(fake, images=None, text=["a", "a b c"], padding=True)
        got = given.get("padding", False)
        wrong += not got
        print(f"{name}: the tokenizer is asked to pad, expected True, got {got}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
