"""plamo3: the mask lets a query see window_size + 1 keys, the cache keeps window_size.

mlx_lm/models/plamo3.py:236 masks for ``window_size + 1`` keys, but line 293 makes a rotating cache
of ``window_size``. Within one pass a token sees one key more than in decoding or in the next piece
of a prompt, so the answer depends on how the prompt was cut, and differs from the pass without a
cache. Mended by the same width in both places.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import plamo3
from mlx_lm.models.cache import make_prompt_cache

CONFIG = {
    "model_type": "plamo3",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "window_size": 4,
    "sliding_window_pattern": 2,
    "rope_theta": 1000,
    "rope_local_theta": 500,
}


def main() -> int:
    mx.random.seed(0)
    model = plamo3.Model(plamo3.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    tokens = mx.array([[7, 21, 40, 2, 60, 11, 38, 5]])

    def last_logits(*pieces: mx.array) -> mx.array:
        cache = make_prompt_cache(model)
        return [model(piece, cache=cache) for piece in pieces][-1][0, -1]

    plain = model(tokens)[0, -1]
    whole = mx.abs(last_logits(tokens) - plain).max().item()
    cut = mx.abs(last_logits(tokens[:, :-1], tokens[:, -1:]) - plain).max().item()
    print(f"mlx-lm {version('mlx-lm')}, plamo3, window_size {CONFIG['window_size']}: last logits")
    print(f"of {tokens.size} tokens, difference from the pass without a cache:")
    print(f"in one piece:        expected 0, got {whole:.3g}")
    print(f"last token by itself: expected 0, got {cut:.3g}")
    return 1 if cut > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
