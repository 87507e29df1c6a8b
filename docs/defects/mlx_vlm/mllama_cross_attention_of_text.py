"""mllama: without an image, cross attention looks at the text's own queries, later ones too.

mlx_vlm/models/mllama/language.py:80-82: without an image's states, and with a cache that nothing
ever fills, half of the query's heads are taken for keys and the others for values, without a mask.
So text sees what comes after it in the same call, and what it sees depends on how the prompt was
cut and what it was padded with. Transformers skips these layers then (modeling_mllama.py:1128).
Mended by that.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.mllama.config import TextConfig
from mlx_vlm.models.mllama.language import LanguageModel

CONFIG = {
    **{"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "cross_attention_layers": [1]},
}
PROMPT = [5, 6, 7, 8, 9, 10]


def make() -> LanguageModel:
    """As a trained model: the gates of cross attention are open."""
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.layers[1].cross_attn_attn_gate = model.layers[1].cross_attn_mlp_gate = mx.ones(1)
    return model


def apart(one: mx.array, other: mx.array) -> float:
    return mx.abs(one - other).max().item()


def main() -> int:
    model = make()
    print(f"mlx-vlm {version('mlx-vlm')}, mllama, text alone: logits, expected 0 apart")
    whole = model(mx.array([PROMPT])).logits[0]
    other = model(mx.array([[*PROMPT[:-1], 33]])).logits[0]
    future = apart(whole[:-1], other[:-1])
    print(f"before the last token, when that is another one: {future:.3g} apart")
    cache = [KVCache() for _ in model.layers]
    model(mx.array([PROMPT[:3]]), cache=cache)
    pieces = apart(whole[-1], model(mx.array([PROMPT[3:]]), cache=cache).logits[0, -1])
    print(f"of the last token, in two pieces: {pieces:.3g} apart")
    cache = [BatchKVCache([2]) for _ in model.layers]
    padded = apart(whole[-1], model(mx.array([[0, 0, *PROMPT]]), cache=cache).logits[0, -1])
    print(f"of the last token, after two of padding: {padded:.3g} apart")
    return 1 if max(future, pieces, padded) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
