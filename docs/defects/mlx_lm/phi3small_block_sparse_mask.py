"""phi3small's block-sparse layers have no causal mask, and their block mask is misplaced.

mlx_lm/models/phi3small.py:146 adds the boolean mask to the scores: +1 for what may be seen, 0 for
the rest, so prefill sees the future. In a batch the mask's rows lie over the kv heads besides
(``[B, 1, L, keys]`` on ``[B, kv_heads, repeats, L, keys]``): a ValueError, or wrong numbers when B
is the number of kv heads. Line 124 takes the last rows of a table rounded up to whole blocks: right
only if the keys end at a block's end, and columns are taken as positions, which padding shifts.
Mended by ``mx.where`` with the mask's axis put in, and blocks from each row's own positions.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import phi3small
from mlx_lm.models.cache import BatchKVCache

CONFIG = {
    "model_type": "phi3small",
    "hidden_size": 32,
    "dense_attention_every_n_layers": 2,
    "ff_intermediate_size": 48,
    "gegelu_limit": 20.0,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 64,
    "blocksparse_block_size": 32,
    "blocksparse_num_local_blocks": 1,
    "blocksparse_vert_stride": 2,
}


def main() -> int:
    mx.random.seed(0)
    model = phi3small.Phi3Model(phi3small.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.1 * mx.random.normal(w.shape), model.parameters()))
    print(f"mlx-lm {version('mlx-lm')}, phi3small: hidden states")

    one, other = model(mx.array([[7, 21, 40, 2, 60], [7, 21, 40, 2, 11]]))
    future = mx.abs(one[:4] - other[:4]).max().item()
    print(f"tokens 0-3 before another token 4: expected equal, got {future:.3g} apart")

    mask_of = model.layers[0].self_attn._block_sparse_mask
    whole, wrong = mask_of(40, 40)[1], 0
    for n in range(40):
        step = mask_of(1, n + 1)[1][..., 0, :]
        wrong += (whole[..., n, : n + 1] != step).sum().item()
    print(f"block mask of 40 tokens as a whole and token by token: {wrong} entries differ")

    try:
        caches = [BatchKVCache([0, 0, 0]) for _ in model.layers]
        mx.eval(model(mx.array([[7, 21], [40, 2], [60, 11]]), cache=caches))
        batch = "no error"
    except ValueError as error:
        batch = f"ValueError: {error}"
    print(f"batch of 3: {batch}")
    return 1 if future > 1e-3 or batch != "no error" or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
