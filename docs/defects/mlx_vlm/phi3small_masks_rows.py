"""phi3small sets logits of rows to minus infinity where it means tokens.

mlx_vlm/models/phi3small/language.py:263 writes ``out[ids] = -inf``: ids of unused tokens, from
100256 to 100351, pick *rows of the batch*. No batch has so many: the write goes past the end of
the array, and ends the process (on a GPU it may go anywhere). Fixed by ``out[..., ids]``, as
mlx-lm has it. Here the ids are replaced by one that is small enough to look at the result.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.phi3small import Model, ModelConfig

CONFIG = {
    **{"model_type": "phi3small", "hidden_size": 32, "dense_attention_every_n_layers": 2},
    **{"ff_intermediate_size": 32, "gegelu_limit": 20.0, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "layer_norm_epsilon": 1e-5},
    **{"vocab_size": 64, "mup_attn_multiplier": 1.0, "mup_use_scaling": True},
    **{"mup_embedding_multiplier": 10.0, "mup_width_multiplier": 8.0},
    **{"rope_embedding_base": 1000.0, "rope_position_scale": 1.0},
    **{"blocksparse_block_size": 32, "blocksparse_num_local_blocks": 1},
    "blocksparse_vert_stride": 2,
}
UNUSED = 1


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    model._dummy_tokenizer_ids = mx.array([UNUSED])
    masked = mx.isinf(model(mx.array([[7, 21, 40]] * 3)).logits)
    rows = mx.all(masked, axis=(1, 2)).tolist()
    tokens = [i for i, m in enumerate(mx.all(masked, axis=(0, 1)).tolist()) if m]
    print(f"mlx-vlm {version('mlx-vlm')}, phi3small: token {UNUSED} is said to be unused")
    print(f"tokens that are out of question: expected [{UNUSED}], got {tokens}")
    print(f"rows without any token: expected none, got {[i for i, r in enumerate(rows) if r]}")
    return 0 if tokens == [UNUSED] and not any(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
