"""Positions of images are kept on the language model, not handed along with the request.

glm4v, glm4v_moe, glm_ocr, paddleocr_vl and ernie4_5_moe_vl keep position ids and rope deltas as
``_position_ids`` and ``_rope_deltas`` of the language model (mlx_vlm/models/glm4v/language.py:518,
glm4v_moe/language.py:577, glm_ocr/language.py:482, paddleocr_vl/language.py:426,
ernie4_5_moe_vl/language.py:603). So
- a padded batch that finds none there counts positions over the padding too; decode does not;
- a prompt that is prefilled after another one was embedded gets the other one's positions;
- of a prompt in pieces only the first has those of the image (glm_ocr has them all).
Fixed by returning both from get_input_embeddings, as qwen2_vl does.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.cache import BatchKVCache, KVCache

FAMILIES = ["glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl", "ernie4_5_moe_vl"]
IDS = {
    **{"image_token_id": 60, "image_token_index": 60, "video_token_id": 61},
    **{"video_token_index": 61, "image_start_token_id": 62, "vision_start_token_id": 62},
    **{"image_end_token_id": 63, "vision_end_token_id": 63, "video_start_token_id": 64},
    **{"video_end_token_id": 65, "image_start_token": 62, "vision_start_token": 62},
}
PROMPT = [5, 62, 60, 60, 60, 60, 63, 9]  # an image of 2 * 2 places
OTHER = [7, 62, 60, 60, 63]  # an image of 1 * 2 places
GRIDS = {8: mx.array([[1, 4, 4]]), 5: mx.array([[1, 2, 4]])}


def make(family: str) -> nn.Module:
    """The language model, with a decoder that only notes the positions that it is given."""
    cls = import_module(f"mlx_vlm.models.{family}.language").LanguageModel
    model = cls.__new__(cls)
    nn.Module.__init__(model)
    model._rope_deltas = model._position_ids = None
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=1)
    model.config = SimpleNamespace(vision_config=vision, spatial_conv_size=2, **IDS)
    model.args = SimpleNamespace(tie_word_embeddings=False)
    model.noted = []

    def decoder(ids: mx.array, cache: list, position_ids: mx.array, **_: object) -> mx.array:
        new = mx.zeros((*ids.shape, 1))[:, None]
        cache[0].update_and_fetch(new, new)
        axis = -1 if family == "ernie4_5_moe_vl" else 0
        model.noted.append(mx.moveaxis(position_ids, axis, 0))
        return new

    object.__setattr__(model, "model", decoder)
    object.__setattr__(model, "lm_head", lambda x: x)
    return model


def embed(model: nn.Module, prompt: list[int]) -> None:
    """What get_input_embeddings does for an image (glm4v.py:75); ernie does so at prefill."""
    made = model.get_rope_index(mx.array([prompt]), GRIDS[len(prompt)], None, None)
    if "ernie" not in type(model).__module__:
        model._position_ids, model._rope_deltas = made


def prefill(model: nn.Module, prompt: list[int], step: int) -> list:
    """The positions, as [part, place], of a prompt prefilled in pieces."""
    cache, model.noted = [KVCache()], []
    for start in range(0, len(prompt), step):
        piece = mx.array([prompt[start : start + step]])
        model(piece, cache=cache, image_grid_thw=GRIDS.get(len(prompt)))
    return mx.concatenate(model.noted, axis=2)[:, 0].tolist()


def text_beside_longer(family: str) -> tuple[list[int], list[int]]:
    model = make(family)
    cache = [BatchKVCache([0, 3])]
    model(mx.array([[1] * 7, [0] * 3 + [5, 6, 7, 8]]), cache=cache)
    model(mx.array([[1], [9]]), cache=cache)
    short = mx.concatenate([model.noted[0][0, 1, 3:], model.noted[1][0, 1]])
    return [0, 1, 2, 3, 4], short.tolist()


def after_another(family: str) -> tuple[list, list]:
    model = make(family)
    embed(model, PROMPT)
    want = prefill(model, PROMPT, 8)[1:]
    model = make(family)
    embed(model, PROMPT)
    embed(model, OTHER)
    return want, prefill(model, PROMPT, 8)[1:]


def two_images(family: str) -> tuple[list, list]:
    """The longer of two rows that are embedded one after the other and prefilled together."""
    want = after_another(family)[0]
    model = make(family)
    embed(model, PROMPT)
    embed(model, OTHER)
    rows = mx.array([PROMPT, [0] * 3 + OTHER])
    grids = mx.concatenate([GRIDS[8], GRIDS[5]])
    model(rows, cache=[BatchKVCache([0, 3])], image_grid_thw=grids)
    return want, model.noted[0][1:, 0].tolist()


def in_pieces(family: str) -> tuple[list, list]:
    whole, cut = make(family), make(family)
    embed(whole, PROMPT)
    embed(cut, PROMPT)
    return prefill(whole, PROMPT, 8)[1:], prefill(cut, PROMPT, 4)[1:]


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, positions (of images: rows and columns)")
    wrong = 0
    for title, play in (
        ("text of 4 tokens beside one of 7, then one decode step", text_beside_longer),
        ("an image after another one was embedded", after_another),
        ("an image beside a shorter prompt with another one", two_images),
        ("an image in pieces of 4", in_pieces),
    ):
        print(f"{title}:")
        for family in FAMILIES:
            want, got = play(family)
            wrong += want != got
            verdict = "as expected" if want == got else f"expected {want}, got {got}"
            print(f"  {family}: {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
