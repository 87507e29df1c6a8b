"""falcon_perception: the boxes of all rows are row 0's, and a size ends the batch.

After each step the model reads what the corner and the size of a box would be, for the next token.
- The corner is read from row 0 (mlx_vlm/models/falcon_perception/language.py:480) and written into
  every row whose token is a coordinate's (line 420).
- Sizes are read from all rows, but written as one (line 426): with two rows or more a size's token
  in any of them raises ValueError, and all requests of the batch are lost.
Fixed by a corner of each row and by one embedding a row.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.models.falcon_perception.config import ModelConfig
from mlx_vlm.models.falcon_perception.falcon_perception import Model

COORD, SIZE = 60, 61
CONFIG = {
    **{"model_type": "falcon_perception", "vocab_size": 64, "dim": 32, "n_layers": 2},
    **{"n_heads": 2, "head_dim": 16, "n_kv_heads": 1, "ffn_dim": 32, "max_seq_len": 64},
    **{"rope_theta": 1000.0, "spatial_patch_size": 4, "do_segmentation": False},
    **{"coord_token_id": COORD, "size_token_id": SIZE, "seg_token_id": 62, "coord_enc_dim": 16},
    **{"coord_dec_dim": 32, "coord_out_dim": 32, "size_enc_dim": 16, "size_dec_dim": 32},
    **{"size_out_dim": 32},
}


def step(model: Model, prompts: list[int], tokens: list[int]) -> mx.array:
    """Logits of each row after its prompt of one token and one more token."""
    cache = [BatchKVCache([0] * len(prompts)) for _ in range(CONFIG["n_layers"])]
    language = model.language_model
    language._pending_coord_xy = language._pending_size_hw = None
    for ids in (prompts, tokens):
        out = language(mx.array(ids)[:, None], cache=cache)
    return out.logits[:, -1]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(dict(CONFIG)))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    print(f"mlx-vlm {version('mlx-vlm')}: row 1 beside row 0, against row 1 alone")
    wrong = 0
    for name, token in (("coordinate", COORD), ("size", SIZE)):
        alone = step(model, [50], [token])[0]
        try:
            beside = step(model, [5, 50], [9, token])[1]
            mx.eval(beside)
        except ValueError as error:
            wrong += 1
            print(f"a {name} in row 1: expected logits, got ValueError: {error}")
            continue
        off = (mx.abs(beside - alone).max() / mx.abs(alone).max()).item()
        wrong += off > 1e-3
        print(f"a {name} in row 1: expected 0 off, got {off:.2g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
