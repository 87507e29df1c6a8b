"""paligemma: a batch attends otherwise than a prompt alone, whose tokens all see each other.

Prompts must be prefilled whole: chunked_prefill_policy says so, but it is a method of Model
(mlx_vlm/models/paligemma/paligemma.py:37), and the server hands the language model to
BatchGenerator (mlx_vlm/server/generation.py:1793), which has none. So all tokens but the last are
prefilled without it. Fixed by the policy on the language model. And where prompts are attended
both ways no mask is made (mlx_vlm/models/paligemma/language.py:236), so the shorter rows of a batch
attend to their padding, in decode too. Fixed by a mask of the padding.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.common import _chunked_prefill_enabled
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.paligemma.config import TextConfig
from mlx_vlm.models.paligemma.language import LanguageModel

CONFIG = {
    **{"model_type": "gemma2", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2},
    **{"head_dim": 16, "query_pre_attn_scalar": 16, "final_logit_softcapping": 30.0},
    **{"attn_logit_softcapping": 50.0, "use_bidirectional_attention": True},
}
LONG, SHORT = [7, 21, 40, 2, 60, 11, 38], [50, 29, 14, 8]


def main() -> int:
    mx.random.seed(0)
    model = LanguageModel(TextConfig(**CONFIG))
    model.update(tree_map(lambda w: w + 0.2 * mx.random.normal(w.shape), model.parameters()))

    def last(rows: list[list[int]], padding: list[int] | None, *, whole: bool) -> mx.array:
        cache = [KVCache() if padding is None else BatchKVCache(padding) for _ in range(2)]
        ids = mx.array(rows)
        if not whole:
            model(ids[:, :-1], cache=cache)
            ids = ids[:, -1:]
        return model(ids, cache=cache).logits[-1, -1]

    alone = last([SHORT], None, whole=True)
    as_batched = last([SHORT], None, whole=not _chunked_prefill_enabled(model))
    pieces = mx.abs(as_batched - alone).max().item()
    padding = len(LONG) - len(SHORT)
    padded = last([LONG, [0] * padding + SHORT], [0, padding], whole=True)
    beside = mx.abs(padded - alone).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, paligemma, logits of 4 tokens against the same alone:")
    print(f"prefilled as BatchGenerator does: expected 0, got {pieces:.3g}")
    print(f"prefilled whole, beside 7 tokens: expected 0, got {beside:.3g}")
    return 1 if max(pieces, beside) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
