"""cohere_compass: texts decode at the positions of the image that was prefilled last.

Texts have no rope deltas of their own, so mlx_vlm/models/cohere_compass/language.py:707 gives them
those that the last prefill left on the model (:607). Fixed by returning them for texts, too.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import KVCache, RotatingKVCache
from mlx_vlm.models.cohere_compass.config import TextConfig
from mlx_vlm.models.cohere_compass.language import LanguageModel

CONFIG = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8},
    **{"layer_types": ["sliding_attention", "full_attention"], "logit_scale": 1.0},
    **{"model_type": "cohere_compass_text", "rope_theta": 100.0},
}


def decoded(delta: int | None, **given: mx.array) -> mx.array:
    """A decode step of a text, after an image with that delta was prefilled."""
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    cache = [RotatingKVCache(8), KVCache()]
    model(mx.array([[50, 29, 14, 8]]), cache=cache)
    if delta is not None:
        model._rope_deltas = mx.array([[delta]])
    return model(mx.array([[3]]), cache=cache, **given).logits


def main() -> int:
    want = decoded(None, rope_deltas=mx.array([[0]]))
    apart = mx.abs(decoded(-2) - want).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, cohere_compass, a decode step after an image's prefill:")
    print(f"logits against the same step alone: expected 0, got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
