"""gpt_bigcode makes one range of positions for all rows of a batch.

mlx_lm/models/gpt_bigcode.py:150 calls ``np.arange(cache[0].offset, ...)``. A batch cache's offset
is a vector, one entry a row: NumPy can make no number of it, and every batch of two or more rows
fails. Mended as in gpt2.py:141: ``mx.arange(L) + mx.array(cache[0].offset)[..., None]``.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import gpt_bigcode
from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

CONFIG = {
    "model_type": "gpt_bigcode",
    "n_embd": 32,
    "n_layer": 2,
    "n_inner": 48,
    "n_head": 4,
    "n_positions": 64,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 64,
}
PROMPTS = [[7, 21, 40, 2, 60, 11, 38], [5, 9, 33]]


def row_positions(start: mx.array, stop: mx.array) -> mx.array:
    """What the module's ``np.arange`` should give: one range for each row."""
    return start[:, None] + mx.arange((stop - start)[0].item())


def worst(model: gpt_bigcode.Model, want: mx.array) -> str:
    padding = [len(PROMPTS[0]) - len(p) for p in PROMPTS]
    batch = mx.array([[0] * n + p for n, p in zip(padding, PROMPTS, strict=True)])
    try:
        got = model(batch, cache=[BatchKVCache(padding) for _ in model.layers])[:, -1]
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{mx.abs(got - want).max().item():.2g} apart"


def main() -> int:
    mx.random.seed(0)
    model = gpt_bigcode.Model(gpt_bigcode.ModelArgs.from_dict(CONFIG))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    alone = [model(mx.array([p]), cache=make_prompt_cache(model))[0, -1] for p in PROMPTS]
    want = mx.stack(alone)
    mx.eval(want)
    print(f"mlx-lm {version('mlx-lm')}, gpt_bigcode: each prompt alone runs; a batch of two:")
    found = worst(model, want)
    print(f"expected: equal up to rounding; got: {found}")
    if found.endswith("apart") and float(found.split()[0]) < 1e-3:
        return 0
    gpt_bigcode.np = SimpleNamespace(arange=row_positions)
    print(f"with a range for each row: {worst(model, want)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
