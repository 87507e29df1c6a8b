"""hunyuan_vl: positions of rows of a batch, of later pieces, and of another prompt.

mlx_vlm/models/hunyuan_vl/language.py:440-459 asks row 0 whether a call is the first of a prompt:
the offset of a padded row is negative, so a padded batch gets no positions at all, while attention
(:212) asks the longest row and wants them. :459 takes the positions of whatever was embedded or
prefilled last. Pieces after the first get plain positions (:212-230), and in decode all rows get
the one position of the longest row (:206, :227). Fixed by positions with rows and parts, handed
along with each request and used in each call.
"""

import sys
from collections.abc import Callable
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.hunyuan_vl.config import ModelConfig
from mlx_vlm.models.hunyuan_vl.language import LanguageModel

CONFIG = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "image_token_id": 60},
    "rope_scaling": {"type": "xdrope", "alpha": 1000.0, "xdrope_section": [2, 2, 2, 2]},
    "vision_config": {"spatial_merge_size": 2},
}
LONG, SHORT = [7, 21, 40, 2, 50, 11, 38, 5, 9], [33, 17, 4, 50, 29]
IMAGE, GRID = [5, *[60] * 8, 9], mx.array([[1, 4, 4]])


def make() -> LanguageModel:
    mx.random.seed(0)
    model = LanguageModel(ModelConfig.from_dict(CONFIG))
    model._position_ids = None
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    return model


def prefill(model: LanguageModel, prompt: list[int], step: int = 99) -> tuple[mx.array, list]:
    cache = [KVCache(), KVCache()]
    for start in range(0, len(prompt), step):
        logits = model(mx.array([prompt[start : start + step]]), cache=cache).logits
    return logits[0, -1], cache


def padded() -> float:
    rows = mx.array([[0] * 4 + SHORT, LONG])
    cache = [BatchKVCache([4, 0]) for _ in range(2)]
    got = make()(rows, cache=cache).logits[0, -1]
    return mx.abs(got - prefill(make(), SHORT)[0]).max().item()


def decoded() -> float:
    caches = [prefill(make(), prompt)[1] for prompt in (LONG, SHORT)]
    joined = [BatchKVCache.merge([a, b]) for a, b in zip(*caches, strict=True)]
    both = make()(mx.array([[8], [8]]), cache=joined).logits[1, -1]
    alone = make()(mx.array([[8]]), cache=caches[1]).logits[0, -1]
    return mx.abs(both - alone).max().item()


def another() -> float:
    model = make()
    model(mx.array([SHORT, LONG[:5]]), cache=[BatchKVCache([0, 0]) for _ in range(2)])
    got = prefill(model, SHORT)[0]
    return mx.abs(got - prefill(make(), SHORT)[0]).max().item()


def pieces() -> float:
    got = []
    for step in (99, 4):
        model = make()
        positions = model.get_xdrope_input_positions(IMAGE, GRID, 60, 2)
        model._position_ids = positions[None]  # as get_input_embeddings does, hunyuan_vl.py:101
        got.append(prefill(model, IMAGE, step)[0])
    return mx.abs(got[0] - got[1]).max().item()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, hunyuan_vl, logits against a prompt alone and whole:")
    wrong = 0
    plays: list[tuple[str, Callable[[], float]]] = [
        ("5 tokens, prefilled beside 9", padded),
        ("a decode step of 5 tokens that joined 9", decoded),
        ("5 tokens alone, after a batch of two", another),
        ("an image in pieces of 4", pieces),
    ]
    for title, play in plays:
        try:
            apart = play()
        except (ValueError, AssertionError) as error:
            wrong += 1
            print(f"{title}: expected 0, got {type(error).__name__}: {error}")
        else:
            wrong += apart > 1e-3
            print(f"{title}: expected 0, got {apart:.3g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
