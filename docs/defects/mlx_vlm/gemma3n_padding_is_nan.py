"""gemma3n: padding in a batch becomes NaN, and with it the row.

mlx_vlm/models/gemma3n/language.py:523 and 548 divide by max(magnitude, finfo.min). finfo.min is the
most negative number, so it guards nothing: the zero embeddings of left padding give 0 / 0. NaN
values of padding reach the row's own tokens, as a weight of 0 times NaN is NaN. Mended by a small
positive number, such as finfo.eps.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache, RotatingKVCache
from mlx_vlm.models.gemma3n.config import TextConfig
from mlx_vlm.models.gemma3n.language import LanguageModel

CONFIG = {
    **{"model_type": "gemma3n_text", "hidden_size": 32, "num_hidden_layers": 3, "head_dim": 16},
    **{"intermediate_size": [32] * 3, "num_attention_heads": 2, "num_key_value_heads": 2},
    **{"vocab_size": 64, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8},
    **{"altup_num_inputs": 2, "laurel_rank": 4, "sliding_window": 16},
    **{"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    **{"activation_sparsity_pattern": [0.0] * 3, "num_kv_shared_layers": 0},
}
LONG, SHORT = [7, 21, 40, 2, 60, 11, 38], [50, 29, 14, 8]


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.update(tree_map(lambda w: w + 0.1 * mx.random.normal(w.shape), model.parameters()))
    embed = model.model.embed_tokens

    def logits(rows: list[list[int]], padding: list[int]) -> mx.array:
        cache = [
            BatchRotatingKVCache(c.max_size, padding)
            if isinstance(c, RotatingKVCache)
            else BatchKVCache(padding)
            for c in model.make_cache()
        ]
        ids = mx.array(rows)
        real = mx.arange(ids.shape[1]) >= mx.array(padding)[:, None]
        embeds = mx.where(real[..., None], embed(ids), 0)  # as the generator pads them
        return model(ids, inputs_embeds=embeds, cache=cache).logits[-1, -1]

    want = logits([SHORT], [0])
    padding = len(LONG) - len(SHORT)
    got = logits([LONG, [0] * padding + SHORT], [0, padding])
    apart = mx.abs(got - want).max().item()
    wrong = mx.isnan(got).sum().item()
    print(f"mlx-vlm {version('mlx-vlm')}, gemma3n, 4 tokens beside 7 against the same alone:")
    print(f"expected 0, got {apart:.3g}; {wrong} of {got.size} logits are NaN")
    return 1 if wrong or apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
