"""llama4: chunked attention knows nothing of padding in a batch.

mlx_vlm/models/llama4/language.py:262 makes one mask for all rows, over the columns of the batch,
from the largest offset: shorter rows attend to their padding, and their chunks begin and end
elsewhere than alone. Line 86 scales queries by the largest offset too. Where the longest rows are
removed before the padding of the others is done, the largest offset is below zero, the mask has
fewer columns than the cache, and attention raises. Mended by a mask and a scale for each row, from
its own positions, over the cache's columns.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.models.llama4.config import TextConfig
from mlx_vlm.models.llama4.language import LanguageModel

CONFIG = {
    **{"model_type": "llama4_text", "hidden_size": 32, "num_hidden_layers": 4},
    **{"intermediate_size": 32, "intermediate_size_mlp": 32, "num_attention_heads": 2},
    **{"num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "vocab_size": 64},
    **{"max_position_embeddings": 256, "rope_theta": 1000.0, "num_local_experts": 2},
    **{"num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "use_qk_norm": True},
    **{"no_rope_layers": [1, 1, 1, 0], "attn_temperature_tuning": True, "rope_scaling": None},
    **{"floor_scale": 16, "attn_scale": 0.1, "tie_word_embeddings": False},
}
LONG, SHORT = list(range(5, 20)), [50, 29, 14, 8]
PAD = len(LONG) - len(SHORT)


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, llama4, logits of 4 tokens beside 15 against them alone:")
    wrong = 0
    for chunk in (8, 8192):
        mx.random.seed(0)
        model = LanguageModel(TextConfig(**CONFIG, attention_chunk_size=chunk))
        model.update(tree_map(lambda w: w + 0.2 * mx.random.normal(w.shape), model.parameters()))

        def last(rows: list[list[int]], padding: list[int], model: LanguageModel = model):
            cache = [BatchKVCache(padding) for _ in range(4)]
            return model(mx.array(rows), cache=cache).logits[-1, -1]

        beside = last([LONG, [0] * PAD + SHORT], [0, PAD])
        apart = mx.abs(beside - last([SHORT], [0])).max().item()
        wrong += apart > 1e-3
        print(f"chunks of {chunk}: expected 0, got {apart:.3g}")
    cache = [BatchKVCache([PAD]) for _ in range(4)]
    try:
        got = f"shape {model(mx.array([[0] * 4]), cache=cache).logits.shape}"
    except ValueError as error:
        wrong, got = wrong + 1, f"ValueError: {error}"
    print(f"4 of {PAD} padded columns of a row left alone: expected shape (1, 4, 64), got {got}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
