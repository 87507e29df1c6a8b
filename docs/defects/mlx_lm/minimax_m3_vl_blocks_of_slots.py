"""minimax_m3_vl: left padding moves the borders of the sparse attention's key blocks.

mlx_lm/models/minimax_m3_vl.py:279-298 cuts blocks over cache slots and gives the query its local
block by slot. In a batch a row's tokens start behind its left padding, so its blocks hold other
tokens than alone, and other keys are kept. Mended by cutting blocks by position: slot minus the
cache's left_padding, for the keys, the query's own block, and the mask that comes back.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import minimax_m3_vl
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import BatchKVCache, KVCache

CONFIG = {
    "hidden_size": 32,
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 1000.0},
    "sparse_attention_config": {
        **{"sparse_num_index_heads": 2, "sparse_index_dim": 8, "sparse_block_size": 4},
        **{"sparse_topk_blocks": 2, "sparse_local_block": 1},
    },
}


def main() -> int:
    mx.random.seed(0)
    attention = minimax_m3_vl.Attention(minimax_m3_vl.TextArgs.from_dict(CONFIG), 0)
    weights = attention.parameters()
    attention.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), weights))
    length, padding = 14, 3
    x = mx.random.normal((1, length, 32))
    padded = mx.concatenate([mx.zeros((1, padding, 32)), x], axis=1)

    def run(inputs: mx.array, caches: list) -> tuple[mx.array, mx.array]:
        mask = create_attention_mask(inputs, caches[0], return_array=True)
        kept = attention._block_mask(inputs, mask, caches[0].offset, caches[1])
        caches[1].trim(inputs.shape[1])
        return kept[0, 0, -1], attention(inputs, mask, caches)[0, -1]

    kept, alone = run(x, [KVCache(), KVCache()])
    kept_padded, together = run(padded, [BatchKVCache([padding]), BatchKVCache([padding])])
    worst = mx.abs(together - alone).max().item()
    keys = [[i for i, k in enumerate(m.tolist()) if k] for m in (kept, kept_padded[padding:])]
    print(f"mlx-lm {version('mlx-lm')}, minimax_m3_vl: blocks of 4 keys, 2 of them kept, one local")
    print(f"keys that token {length - 1} attends to alone:       {keys[0]}")
    print(f"the same with {padding} columns of left padding: {keys[1]}")
    print(f"attention output: expected equal, got up to {worst:.3g} apart")
    return 1 if worst > 1e-3 or keys[0] != keys[1] else 0


if __name__ == "__main__":
    sys.exit(main())
