"""Prefix caching cuts prompts inside of images of models that forbid it.

Checkpoints of the prefix cache are to lie behind the media (adjust_prefix_to_text_suffix_boundary,
mlx_vlm/apc.py:559). Which tokens are media, the generator reads from the config of the model that
it was given (mlx_vlm/generate/ar.py:2628): the server gives it the language model, whose config has
no image_token_id, so there are none. Prefill is then cut at a checkpoint (ar.py:2005) though the
model's ``chunked_prefill_policy`` says no, and what is seen both ways in an image sees half of it.
Fixed by the config of the whole model, or by no checkpoint where pieces are forbidden.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

from mlx_vlm.apc import adjust_prefix_to_text_suffix_boundary
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.gemma4_unified.config import ModelConfig, TextConfig

IMAGE, WANTED = 9, 6
PROMPT = [1, 2, 3, *[IMAGE] * 8, 4, 5, 6]


def main() -> int:
    text = TextConfig()
    whole = ModelConfig(text_config=text, image_token_id=IMAGE)
    print(
        f"mlx-vlm {version('mlx-vlm')}: an image at tokens 3 to 10, a checkpoint wanted at {WANTED}"
    )
    found = {}
    for name, config in (("model", whole), ("language model", text)):
        generator = SimpleNamespace(model=SimpleNamespace(config=config))
        media = BatchGenerator._apc_media_token_ids(generator)
        found[name] = adjust_prefix_to_text_suffix_boundary(PROMPT, WANTED, media)
        print(f"config of the {name}: media tokens {sorted(media)}, checkpoint at {found[name]}")
    print("expected: the same, behind the image")
    return 1 if found["language model"] < 11 else 0


if __name__ == "__main__":
    sys.exit(main())
