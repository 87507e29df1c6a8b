"""gemma2 adds a mask of (rows, 1, queries, keys) to scores of five axes: rows are taken for heads.

With grouped queries the scores are (rows, kv heads, groups, queries, keys), and
mlx_vlm/models/gemma2/language.py:82 applies the batch's mask of four axes as it is: its rows meet
the kv heads. With as many rows as kv heads, each head of *all* rows gets one row's padding; with
any other number of rows above one the model raises. Mended by a fifth axis in the mask.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.gemma2 import Model, ModelConfig

CONFIG = {
    **{"model_type": "gemma2", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    **{"rms_norm_eps": 1e-5, "rope_theta": 1000.0, "max_position_embeddings": 64},
    **{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "query_pre_attn_scalar": 8,
}
SHORT, LONG = [7, 21, 40, 2], [60, 11, 38, 5, 9, 17, 33, 50, 3, 28]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    alone = model(mx.array([SHORT]), cache=model.make_cache()).logits[0, -1]
    padding = len(LONG) - len(SHORT)
    print(f"mlx-vlm {version('mlx-vlm')}, gemma2 with two kv heads: a short prompt beside others")
    failed = False
    for rows in (2, 3):
        ids = mx.array([[0] * padding + SHORT, *[LONG] * (rows - 1)])
        cache = _make_cache(model, [padding] + [0] * (rows - 1))
        try:
            apart = mx.abs(model(ids, cache=cache).logits[0, -1] - alone).max().item()
        except ValueError as error:
            print(f"{rows} rows: expected 0 from alone, got ValueError: {error}")
            failed = True
        else:
            print(f"{rows} rows: expected 0 from alone, got {apart:.3g}")
            failed = failed or apart > 1e-3
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
