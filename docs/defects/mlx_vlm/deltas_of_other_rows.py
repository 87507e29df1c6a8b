"""minicpmo and minimax_m3: a prefill is given the rope deltas of other rows, and fails.

Both models give their prompts no rope deltas. A prefill of several rows then takes those that the
last batch left on the model: mlx_vlm/models/minimax_m3_vl/language.py:2105 those of the last
prefill, mlx_vlm/models/qwen3_vl/language.py:613, which minicpmo uses, those of the rows that decode
(:504). If these were fewer, but more than one, the shapes do not fit, and the whole batch ends.
Fixed by giving each prompt a rope delta of 0, as it has one token for each position.
"""

import sys
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from mlx_vlm.generate import ar
from mlx_vlm.models.minicpmo.config import TextConfig as MiniCPMConfig
from mlx_vlm.models.minimax_m3_vl.config import TextConfig as MiniMaxConfig
from mlx_vlm.models.minimax_m3_vl.language import LanguageModel as MiniMax
from mlx_vlm.models.qwen3_vl.language import LanguageModel as Qwen3VL

MINIMAX = {
    **{"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rotary_dim": 4},
    **{"dense_intermediate_size": 32, "rope_theta": 1000.0, "moe_layer_freq": [0, 0]},
    "sparse_attention_config": {
        **{"use_sparse_attention": True, "sparse_num_index_heads": 2, "sparse_index_dim": 8},
        **{"sparse_block_size": 4, "sparse_topk_blocks": 16, "sparse_local_block": 1},
        "sparse_attention_freq": [1, 1],
    },
}
MINICPM = {
    **{"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64},
    **{"rms_norm_eps": 1e-6, "rope_theta": 1000.0, "max_position_embeddings": 256},
    "rope_scaling": {"type": "default", "mrope_section": [4, 2, 2]},
}
FEW, MANY = [3, 0, 1], [2, 0, 1, 3]  # the padding of each row, of six columns


def prefilled(model: Any, padding: list[int]) -> tuple[list[Any], mx.array]:
    """The caches and the last logits of rows of prompts."""
    cache = ar._make_cache(model, padding)
    tokens = mx.arange(1, 6 * len(padding) + 1).reshape(len(padding), 6)
    return cache, model(tokens, cache=cache).logits[:, -1]


def after_another(model: Any) -> mx.array:
    """The logits of four prompts that are prefilled while three others decode."""
    cache, _ = prefilled(model, FEW)
    model(mx.array([[1]] * 3), cache=cache, rope_deltas=mx.zeros((3, 1), mx.int32))
    return prefilled(model, MANY)[1]


def main() -> int:
    minimax, minicpm = MiniMax(MiniMaxConfig(**MINIMAX)), Qwen3VL(MiniCPMConfig(**MINICPM))
    # As embedding a prompt leaves them.
    minimax._rope_deltas, minicpm._rope_deltas = None, mx.zeros((1, 1), mx.int32)
    failed = False
    print(f"mlx-vlm {version('mlx-vlm')}: four prompts are prefilled while three rows decode")
    for name, model in (("minimax_m3", minimax), ("minicpmo", minicpm)):
        try:
            mx.eval(after_another(model))
            print(f"{name}: expected logits, got logits")
        except ValueError as error:
            failed = True
            print(f"{name}: expected logits, got ValueError: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
