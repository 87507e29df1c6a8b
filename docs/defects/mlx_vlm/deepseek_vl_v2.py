"""deepseek_vl_v2: images end a batch, and stray memory decides whether an image is seen at all.

1. The processor's labels and masks go to the batch generator beside the embeddings, and
   mlx_vlm/generate/ar.py:847 concatenates each over the rows: two prompts with images that are
   prefilled together end the batch if their lengths differ, though the language model takes no
   notice of either. Fixed by handing on only what the language model takes.
2. mlx_vlm/models/deepseek_vl_v2/deepseek_vl_v2.py:325 takes the number of tiles for that of images
   and looks up each in the table of crops, past its end (line 333). What lies there is stray: a
   negative product takes tiles away (line 336), down to none at all, and then the embeddings
   have no image (line 344). Fixed by ``images_spatial_crop.shape[1]``.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate import ar
from mlx_vlm.models.deepseek_vl_v2 import Model, ModelConfig

CONFIG = {
    "model_type": "deepseek_vl_v2",
    "vocab_size": 64,
    "image_token_index": 60,
    "text_config": {
        **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "num_key_value_heads": 2, "n_routed_experts": None},
        **{"kv_lora_rank": 16, "q_lora_rank": None, "qk_rope_head_dim": 8, "v_head_dim": 16},
        **{"qk_nope_head_dim": 16},
    },
    "vision_config": {
        **{"model_type": "vision", "layers": 1, "width": 32, "intermediate_size": 48},
        **{"num_attention_heads": 2, "image_size": 16, "patch_size": 4},
    },
    "projector_config": {"input_dim": 32, "n_embed": 32},
}
TOKENS = 13  # of an image of one tile and the whole: 2 * (2 + 1) for each, and one between


def together() -> str:
    """Two rows of other lengths, with what the processor gives for an image in each."""
    rows = [
        {
            "inputs_embeds": mx.zeros((1, length, 32)),
            "labels": mx.zeros((1, length), mx.int32),
            "images_seq_mask": mx.zeros((1, length), mx.bool_),
        }
        for length in (19, 25)
    ]
    try:
        ar._merge_prefill_prompt_kwargs(rows, [[1] * 19, [1] * 25])
    except ValueError as error:
        return f"ValueError: {error}"
    return ""


class Table:
    """A table of crops of one image; past its end stands what the memory there may hold."""

    shape = (1, 1, 2)

    def __init__(self, stray: list[int]) -> None:
        self.stray = stray

    def __getitem__(self, at: int | tuple[int, int]) -> object:
        if isinstance(at, tuple):
            return self[at[0]][at[1]]
        return [mx.array([1, 1]), mx.array(self.stray)]


def seen(model: Model, stray: list[int]) -> int:
    """How many of an image's places in the prompt get an embedding that is no token's."""
    ids = mx.array([[5, 6, *[60] * TOKENS, 7]])
    given = {"images_spatial_crop": Table(stray), "images_seq_mask": ids == 60}
    found = model.get_input_embeddings(ids, mx.ones((1, 2, 3, 16, 16)), **given).inputs_embeds
    plain = model.language_model.model.embed_tokens(ids)
    return mx.any(found != plain, axis=-1).sum().item()


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG))
    print(f"mlx-vlm {version('mlx-vlm')}, deepseek_vl_v2")
    error, lost = together(), 0
    print(f"two prompts with images, prefilled together, expected no error: {error or 'none'}")
    print(f"read past the end of [[1, 1]]: {mx.array([[[1, 1]]])[0][1].tolist()}, any numbers")
    for stray in ([0, 0], [1, 1], [1, -9]):
        lost += (number := seen(model, stray)) != TOKENS
        print(f"an image, expected {TOKENS} places: {number} with {stray} behind its table")
    return 1 if error or lost else 0


if __name__ == "__main__":
    sys.exit(main())
