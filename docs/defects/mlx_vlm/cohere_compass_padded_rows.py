"""cohere_compass: padded rows, and positions of rows, in batches.

mlx_vlm/models/cohere_compass/language.py:624 prepares the caches with the padding that the batch
generator has already made them with, and prepare adds it: it counts twice. Attention then cuts each
row at its padding (:233-243) as if columns were still in order: not in a sliding window that has
wrapped around, nor where a prefill piece is shorter than the padding. Mended by leaving padding to
the caches and their masks. And texts have no rope deltas, so :707 gives them those of the last
prefill. Mended by returning them for texts too.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache, KVCache, RotatingKVCache
from mlx_vlm.models.cohere_compass.config import TextConfig
from mlx_vlm.models.cohere_compass.language import LanguageModel

CONFIG = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8},
    **{"layer_types": ["sliding_attention", "full_attention"], "logit_scale": 1.0},
    **{"model_type": "cohere_compass_text", "rope_theta": 100.0},
}
LONG, SHORT = list(range(5, 20)), [50, 29, 14, 8]
PAD = len(LONG) - len(SHORT)


def make() -> LanguageModel:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    return model


def batch() -> list:
    return [BatchRotatingKVCache(8, [0, PAD]), BatchKVCache([0, PAD])]


def alone() -> tuple[mx.array, list]:
    cache = [RotatingKVCache(8), KVCache()]
    return make()(mx.array([SHORT]), cache=cache).logits[0, -1], cache


def beside(step: int, *, mask: bool) -> float:
    rows = mx.array([LONG, [0] * PAD + SHORT])
    real = mx.arange(len(LONG)) >= mx.array([[0], [PAD]])
    model, cache = make(), batch()
    for start in range(0, len(LONG), step):
        kwargs = {"attention_mask": real.astype(mx.int32)[:, start : start + step]} if mask else {}
        positions = mx.maximum(mx.cumsum(real.astype(mx.int32), axis=1) - 1, 0)
        if model.model.rotary_emb.position_selector is not None:
            positions = mx.stack([positions] * 3)
        kwargs["position_ids"] = positions[..., start : start + step]
        got = model(rows[:, start : start + step], cache=cache, **kwargs).logits[1, -1]
    return mx.abs(got - alone()[0]).max().item()


def decoded(delta: int) -> float:
    model, cache = make(), alone()[1]
    want = model(mx.array([[3]]), cache=alone()[1], rope_deltas=mx.array([[0]])).logits
    model._rope_deltas = mx.array([[delta]])  # as an image prompt that was prefilled since
    return mx.abs(model(mx.array([[3]]), cache=cache).logits - want).max().item()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, cohere_compass, logits of 4 tokens against them alone:")
    wrong = 0
    for title, play in (
        (
            "beside 15, with the attention mask of get_input_embeddings",
            lambda: beside(15, mask=True),
        ),
        ("beside 15, without it, in pieces of 14", lambda: beside(14, mask=False)),
        ("beside 15, without it, in pieces of 8", lambda: beside(8, mask=False)),
        ("a decode step, after an image was prefilled", lambda: decoded(-2)),
    ):
        try:
            apart = play()
        except ValueError as error:
            wrong += 1
            print(f"{title}: expected 0, got ValueError: {error}")
        else:
            wrong += not apart < 1e-3
            print(f"{title}: expected 0, got {apart:.3g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
