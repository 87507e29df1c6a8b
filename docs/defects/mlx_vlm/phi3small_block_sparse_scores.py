"""phi3small adds a boolean mask to its scores, and cuts blocks over columns.

mlx_vlm/models/phi3small/language.py:118 adds the mask, which is True for the keys that are seen: a
key that should be hidden keeps its score, and one that should not gets 1 more. So a prompt's answer
depends on how it is cut. The mask has four axes (rows, 1, queries, keys) and the scores five: a
batch raises, or its rows get each other's masks. Behind that, line 80 cuts blocks from the last key
backwards and over the padding of a row. Each pass here is shorter than a block, so that the mask
alone decides. mlx_vlm/models/phi3small/language.py:263 ends the process in every call: it is kept
from it by ids that are small enough.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.phi3small import Model, ModelConfig

CONFIG = {
    **{"model_type": "phi3small", "hidden_size": 32, "dense_attention_every_n_layers": 1},
    **{"ff_intermediate_size": 32, "gegelu_limit": 20.0, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "layer_norm_epsilon": 1e-5},
    **{"vocab_size": 64, "mup_attn_multiplier": 1.0, "mup_use_scaling": True},
    **{"mup_embedding_multiplier": 10.0, "mup_width_multiplier": 8.0},
    **{"rope_embedding_base": 1000.0, "rope_position_scale": 1.0},
    **{"blocksparse_block_size": 32, "blocksparse_num_local_blocks": 1},
    "blocksparse_vert_stride": 2,
}
PROMPT = [7, 21, 40, 3, 12, 33, 9, 50]
ROWS = 3


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    model._dummy_tokenizer_ids = mx.array([], mx.int32)
    cut, cache = len(PROMPT) // 2, model.make_cache()
    whole = model(mx.array([PROMPT])).logits
    first = model(mx.array([PROMPT[:cut]]), cache=cache).logits
    apart = mx.abs(whole[:, cut - 1] - first[:, -1]).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, phi3small: logits after token {cut}")
    print(f"with and without what follows: expected equal, {apart:.3g} apart")
    try:
        caches = [type(one).merge([type(one)() for _ in range(ROWS)]) for one in cache]
        rows = model(mx.array([PROMPT] * ROWS), cache=caches).logits
        found = f"{mx.abs(rows - whole).max().item():.3g} apart"
    except ValueError as error:
        found = f"ValueError: {error}"
    print(f"{ROWS} equal rows, and one by itself: expected equal, {found}")
    return 1 if apart > 1e-4 or found.startswith("ValueError") else 0


if __name__ == "__main__":
    sys.exit(main())
