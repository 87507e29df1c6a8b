"""qwen3_vl_moe and qwen3_omni_moe cut the mask to the longest row, not to the cache's columns.

mlx_vlm/models/qwen3_vl_moe/language.py:119 and qwen3_omni_moe/language.py:133 take the tokens and
the largest offset as the number of keys. Where each row of a batch has padding (rows that reuse
prefixes, or rows whose longest was removed), the cache has more columns than that, the mask fewer,
and attention raises. qwen3_vl takes the number of keys itself, which fixes it.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.base import create_attention_mask
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.models.qwen3_omni_moe import language as omni
from mlx_vlm.models.qwen3_omni_moe.config import TextConfig as OmniConfig
from mlx_vlm.models.qwen3_vl_moe import language as vl
from mlx_vlm.models.qwen3_vl_moe.config import TextConfig

CONFIG = {
    **{"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    **{"num_hidden_layers": 1, "vocab_size": 64, "intermediate_size": 32, "rms_norm_eps": 1e-6},
    **{"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32},
    **{"rope_theta": 1000.0, "max_position_embeddings": 64, "decoder_sparse_step": 1},
    **{"mlp_only_layers": [], "norm_topk_prob": True, "tie_word_embeddings": False},
    "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]},
}


def attended(attention: object, padding: list[int]) -> str:
    """What comes of one more token of two rows with 9 columns and that padding."""
    cache = BatchKVCache(padding)
    filled = mx.zeros((2, 1, 9, 16))
    cache.update_and_fetch(filled, filled)
    x = mx.ones((2, 1, 32))
    mask = create_attention_mask(x, cache, return_array=True)
    places = mx.broadcast_to(cache.offset[None, :, None], (3, 2, 1))
    try:
        return f"shape {attention(x, mask=mask, cache=cache, position_ids=places).shape}"
    except ValueError as error:
        return f"ValueError: {error}"


def main() -> int:
    made = {
        "qwen3_vl_moe": vl.Attention(
            TextConfig.from_dict({"model_type": "qwen3_vl_moe_text", **CONFIG})
        ),
        "qwen3_omni_moe": omni.Attention(
            OmniConfig.from_dict({"model_type": "qwen3_omni_moe_text", **CONFIG})
        ),
    }
    failed = 0
    for name, attention in made.items():
        for padding in ([0, 3], [2, 3]):
            said = attended(attention, padding)
            failed += said.startswith("ValueError")
            print(f"mlx-vlm {version('mlx-vlm')}: {name}, padding {padding}: {said}")
    print("expected: shape (2, 1, 32) each time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
