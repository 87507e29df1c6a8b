"""Prefix caching: cohere_compass forgets a new image beside a request that reuses a prefix.

A prompt's deep features have a mask of its own tokens, and the model cuts it at the column where
the batch goes on (mlx_vlm/models/cohere_compass/language.py:678): the end of the longest
prefix. A new image whose tokens lie before that column gets none of its deep features.
Fixed by a mask of the batch's columns, which begins where the kept ones end.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.cohere_compass.config import TextConfig
from mlx_vlm.models.cohere_compass.language import DeepstackVisualFeatures, LanguageModel

CONFIG = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8},
    **{"layer_types": ["full_attention", "full_attention"], "logit_scale": 1.0},
    **{"model_type": "cohere_compass_text", "rope_theta": 100.0},
}
IMAGE = 33
NEW = [7, IMAGE, IMAGE, 8]  # a prompt: text, an image of two tokens, text
KEPT = [5, 9, 21, 40, 2]  # the prefix that the other row reuses


def read(rows: int) -> int:
    """The number of an image's features that the first layer is given, with that many rows."""
    counts = []
    model = LanguageModel(TextConfig(**CONFIG))
    model.model._deepstack_process = lambda hidden, _, embeds: counts.append(len(embeds)) or hidden
    kept = [KVCache(), KVCache()]
    model(mx.array([KEPT]), cache=kept)
    new = [KVCache(), KVCache()]
    together = [BatchKVCache.merge(list(both)) for both in zip(new, kept, strict=True)]
    image = mx.array([[token == IMAGE for token in NEW], [False] * len(NEW)])
    model(
        mx.array([NEW, NEW])[:rows],
        cache=new if rows == 1 else together,
        position_ids=mx.broadcast_to(mx.arange(len(NEW)), (rows, len(NEW))),
        deepstack_visual_embeds=DeepstackVisualFeatures([mx.ones((2, 32))], image[:rows]),
    )
    return counts[0]


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: features of an image of two tokens that are read")
    alone, beside = read(1), read(2)
    print(f"alone {alone}, beside {len(KEPT)} tokens that another row reuses {beside}")
    print("expected: 2 both times")
    return 0 if alone == beside else 1


if __name__ == "__main__":
    sys.exit(main())
