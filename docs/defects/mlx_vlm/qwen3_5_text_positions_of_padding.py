"""qwen3_5_text counts a row's left padding as positions in prefill, and not in decoding.

Without position ids, which its ``get_input_embeddings`` does not give, the model makes them
itself: the first time from the columns (mlx_vlm/models/qwen3_5/language.py:1753), later from the
cache's offsets, of which negative ones are raised to 0 (line 1688). Either way the tokens of the
piece in which padding ends come too late by the padding, and those of later pieces and of decoding
come right: their distances are wrong. qwen3_5 is given positions of each row. Mended by offsets as
they are.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.qwen3_5_text import Model, ModelConfig

CONFIG = {
    **{"model_type": "qwen3_5_text", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6},
    **{"linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2},
    **{"intermediate_size": 32, "max_position_embeddings": 64, "tie_word_embeddings": False},
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
        "mrope_section": [2, 1, 1],
    },
}
SHORT, LONG, NEXT = [7, 21, 40, 2], [60, 11, 38, 5, 9, 17, 33, 50, 3, 28], 44


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    padding = len(LONG) - len(SHORT)

    def decoded(rows: list[list[int]], cache: list) -> mx.array:
        model(mx.array(rows), cache=cache)
        return model(mx.array([[NEXT]] * len(rows)), cache=cache).logits[-1, -1]

    batch = decoded([LONG, [0] * padding + SHORT], _make_cache(model, [0, padding]))
    model._position_ids = model._rope_deltas = None
    alone = decoded([SHORT], model.make_cache())
    apart = mx.abs(batch - alone).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, qwen3_5_text: {len(SHORT)} beside {len(LONG)}, then one")
    print(f"logits: expected 0 from the same alone, got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
