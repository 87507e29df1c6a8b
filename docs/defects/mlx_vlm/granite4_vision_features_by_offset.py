"""granite4_vision: an image cannot be prefilled by the batch generator, not even alone.

mlx_vlm/models/granite4_vision/language.py:172 cuts deep features and their mask by the cache's
offset, which in a batch cache is an array of rows: every image request raises. With a number there
it would cut once more what the generator has cut already, and by rows instead of places, as the
features of several rows stand one after the other. Mended by features of shape [rows, places,
layers, width], which the generator pads and cuts, and no slices in the model.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.granite4_vision.config import TextConfig
from mlx_vlm.models.granite4_vision.language import LanguageModel

CONFIG = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "shared_intermediate_size": 32},
}
PLACES = 5


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.model._deepstack_target_layers = [0]  # as get_input_embeddings does
    image = {
        "inputs_embeds": mx.random.normal((1, PLACES, 32)),
        "deepstack_visual_embeds": mx.random.normal((1, PLACES, 32)),
        "visual_pos_masks": mx.array([[False, True, True, True, False]]),
    }
    ids = mx.array([[1, 60, 60, 60, 2]])
    alone = model(ids, cache=[KVCache(), KVCache()], **image).logits[0, -1]
    print(f"mlx-vlm {version('mlx-vlm')}, granite4_vision, an image prompt as a batch of one:")
    try:
        one = model(ids, cache=[BatchKVCache([0]), BatchKVCache([0])], **image).logits[0, -1]
    except ValueError as error:
        print(f"expected the logits of generate_step, got ValueError: {error}")
        return 1
    apart = mx.abs(one - alone).max().item()
    print(f"logits against generate_step: {apart:.3g} apart")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
