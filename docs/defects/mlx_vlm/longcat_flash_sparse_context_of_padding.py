"""longcat_flash_sparse hashes padding into the tokens that follow a right-padded prompt.

NgramEmbedding (mlx_vlm/models/longcat_flash_sparse/language.py:85) keeps the last columns of a
batch as the context of what comes next, whatever the rows' own lengths. Rows that reuse prefixes
are padded on the right (mlx_vlm/generate/ar.py:2738), and the cache knows their lengths. Besides,
the context is only as wide as what was seen: rows of one or two tokens cannot join others
(ArraysCache.extend raises). Fixed by a context of full width that ends where each row does.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import ArraysCache
from mlx_vlm.models.longcat_flash_sparse.config import ModelConfig
from mlx_vlm.models.longcat_flash_sparse.language import NgramEmbedding

CONFIG = {
    **{"model_type": "longcat_flash_sparse", "hidden_size": 32, "vocab_size": 64},
    **{"oe_vocab_size_ratio": 2, "oe_neighbor_num": 4, "oe_split_num": 2},
}
LONG, SHORT, PAD = [7, 21, 40, 2, 60, 11], [9, 17, 33], 0


def main() -> int:
    embedding = NgramEmbedding(ModelConfig.from_dict(CONFIG))
    alone = ArraysCache(size=1)
    embedding(mx.array([SHORT]), cache=alone)
    batch = ArraysCache(size=1)
    batch.prepare(lengths=[len(LONG), len(SHORT)])
    padded = SHORT + [PAD] * (len(LONG) - len(SHORT))
    embedding(mx.array([LONG, padded]), cache=batch)
    right, got = alone[0][0].tolist(), batch[0][1].tolist()
    print(f"mlx-vlm {version('mlx-vlm')}, longcat_flash_sparse: the context that {SHORT} leaves")
    print(f"padded to {len(LONG)}: expected {right}, got {got}")
    return 0 if got == right else 1


if __name__ == "__main__":
    sys.exit(main())
