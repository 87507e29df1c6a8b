"""mllama: positions are the batch's columns, padding included, also when columns come or go.

mlx_vlm/models/mllama/language.py:147 rotates all rows by ``cache_position_offset``, the columns of
the batch's cache. Keys keep the column at which they were written; when a longer row leaves
(BatchKVCache.filter drops the padding) or joins (extend adds some) the next columns are others, and
queries are too near to the row's keys or too far from them. Fixed by ``cache.offset``, as
``cache_position_offset`` itself says (mlx_vlm/models/base.py:269).
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.mllama.config import TextConfig
from mlx_vlm.models.mllama.language import LanguageModel

CONFIG = {
    **{"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "cross_attention_layers": []},
}
SHORT, LONG = [5, 6, 7], [11, 12, 13, 14, 15, 16, 17, 18]
NEXT = 9


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    alone = [KVCache() for _ in model.layers]
    model(mx.array([SHORT]), cache=alone)
    expected = model(mx.array([[NEXT]]), cache=alone).logits[0, -1]

    padding = len(LONG) - len(SHORT)
    left = [BatchKVCache([padding, 0]) for _ in model.layers]
    model(mx.array([[0] * padding + SHORT, LONG]), cache=left)
    joined = [BatchKVCache([0]) for _ in model.layers]
    model(mx.array([SHORT]), cache=joined)
    longer = [BatchKVCache([0]) for _ in model.layers]
    model(mx.array([LONG]), cache=longer)
    for mine, other, last in zip(joined, longer, left, strict=True):
        mine.extend(other)
        last.filter(mx.array([0]))

    print(f"mlx-vlm {version('mlx-vlm')}, mllama: logits of a short row's next token")
    found = {
        "after a longer row has left": model(mx.array([[NEXT]]), cache=left),
        "after a longer row has joined": model(mx.array([[NEXT], [NEXT]]), cache=joined),
    }
    apart = [mx.abs(out.logits[0, -1] - expected).max().item() for out in found.values()]
    for what, value in zip(found, apart, strict=True):
        print(f"{what}, expected 0 from the row alone: {value:.3g} apart")
    return 1 if max(apart) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
