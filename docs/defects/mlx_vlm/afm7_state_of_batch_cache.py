"""afm7 unpacks the state of its last layer's cache into keys and values, whatever the cache.

mlx_vlm/models/afm7/language.py:351 unpacks ``cache[-1].state`` into two; BatchKVCache.state has
four parts (offset and left padding too), that of a quantized cache is another again. Every batch
raises. (Behind it: line 244 rotates the queries of the layers that reuse these by the column, not
by the row's position.) Mended by handing on what update_and_fetch gave.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.afm7 import Model, ModelConfig

CONFIG = {
    **{"model_type": "afm7", "vocab_size": 64, "hidden_dim": 32, "hidden_dim_scale_factor": 2.0},
    **{"num_layers": 3, "num_kv_reuse_layers": 1, "num_heads": 2, "num_kv_heads": 2},
    **{"rope_theta": 1000.0, "rms_norm_eps": 1e-5},
}
PROMPT = [7, 21, 40, 2]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG)).language_model
    print(f"mlx-vlm {version('mlx-vlm')}, afm7: two equal prompts in a batch")
    try:
        got = model(mx.array([PROMPT] * 2), cache=_make_cache(model, [0, 0])).logits
    except ValueError as error:
        print(f"expected logits, got ValueError: {error}")
        return 1
    alone = model(mx.array([PROMPT]), cache=model.make_cache()).logits
    apart = mx.abs(got - alone).max().item()
    print(f"expected 0 from the prompt alone, got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
