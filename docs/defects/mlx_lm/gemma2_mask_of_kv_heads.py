"""gemma2 lays a batch's mask over the kv heads.

mlx_lm/models/gemma2.py:98: the scores are ``[B, kv_heads, repeats, L, keys]``, a batch cache's mask
is ``[B, 1, L, keys]``. Broadcasting from the right lays the mask's batch axis over the kv heads:
a ValueError, unless B is the number of kv heads (or 1). Then kv head h of every row gets the mask
of row h, and padded keys are attended. Mended by ``mask = mx.expand_dims(mask, 2)`` where
``self.repeats > 1`` and the mask has four axes.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import gemma2
from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

CONFIG = {
    "model_type": "gemma2",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}
PROMPTS = [[7, 21, 40, 2, 60, 11, 38], [5, 9, 33], [17, 4]]
attend = gemma2.Attention.__call__


def mended(self, x, mask=None, cache=None):
    if mask is not None and mask.ndim == 4:
        mask = mx.expand_dims(mask, 2)
    return attend(self, x, mask, cache)


def worst(model: gemma2.Model, rows: int) -> str:
    """The largest difference of next-token logits between alone and in a batch."""
    padding = [len(PROMPTS[0]) - len(p) for p in PROMPTS[:rows]]
    batch = mx.array([[0] * n + p for n, p in zip(padding, PROMPTS, strict=False)])
    caches = [BatchKVCache(padding) for _ in model.layers]
    try:
        got = model(batch, cache=caches)[:, -1]
    except ValueError as error:
        return f"ValueError: {error}"
    want = [model(mx.array([p]), cache=make_prompt_cache(model))[0, -1] for p in PROMPTS[:rows]]
    return f"{mx.abs(got - mx.stack(want)).max().item():.2g} apart"


def main() -> int:
    mx.random.seed(0)
    model = gemma2.Model(gemma2.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    print(f"mlx-lm {version('mlx-lm')}, gemma2, 2 kv heads: next-token logits, alone and batched")
    found = [worst(model, 2), worst(model, 3)]
    print(f"batch of 2: {found[0]}\nbatch of 3: {found[1]}")
    if all(text.endswith("apart") and float(text.split()[0]) < 1e-3 for text in found):
        return 0
    gemma2.Attention.__call__ = mended
    print(f"with an axis put into the mask: {worst(model, 2)}; {worst(model, 3)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
