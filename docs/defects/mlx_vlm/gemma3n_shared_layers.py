"""gemma3n: layers that share keys turn their queries too far, and without a cache do not share.

mlx_vlm/models/gemma3n/language.py:137 takes the cache's offset after the layer that owns it has
added the new tokens: queries are rotated by the length of the piece too much, so logits depend on
how a prompt is cut. And line 134 shares only where there is a cache: a pass without one attends to
the layer's own keys, which the checkpoint was not trained with. Fixed by the offset from before,
and by handing keys and values from layer to layer.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.gemma3n.config import TextConfig
from mlx_vlm.models.gemma3n.language import LanguageModel

CONFIG = {
    **{"model_type": "gemma3n_text", "hidden_size": 32, "num_hidden_layers": 4, "head_dim": 16},
    **{"intermediate_size": [32] * 4, "num_attention_heads": 2, "num_key_value_heads": 2},
    **{"vocab_size": 64, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8},
    **{"altup_num_inputs": 2, "laurel_rank": 4, "sliding_window": 32},
    **{"layer_types": ["sliding_attention", "full_attention"] * 2},
    **{"activation_sparsity_pattern": [0.0] * 4, "rope_theta": 100.0},
    **{"rope_local_base_freq": 100.0},
}
PROMPT = [7, 21, 40, 2, 60, 11, 38, 50, 29]


def make(shared: int) -> LanguageModel:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG, num_kv_shared_layers=shared))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    return model


def last(model: LanguageModel, step: int) -> mx.array:
    cache = model.make_cache()
    for start in range(0, len(PROMPT), step):
        logits = model(mx.array([PROMPT[start : start + step]]), cache=cache).logits
    return logits[0, -1]


def main() -> int:
    wrong = 0
    print(f"mlx-vlm {version('mlx-vlm')}, gemma3n of 4 layers, logits of a prompt of 9 tokens:")
    for shared in (0, 2):
        model = make(shared)
        pieces = mx.abs(last(model, 9) - last(model, 8)).max().item()
        bare = mx.abs(last(model, 1) - model(mx.array([PROMPT])).logits[0, -1]).max().item()
        wrong += max(pieces, bare) > 1e-3
        print(f"{shared} layers share keys: expected 0 and 0, got {pieces:.3g} between 9 and 8 + 1")
        print(f"  tokens at a time, {bare:.3g} between a cache and none")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
