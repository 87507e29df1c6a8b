"""inkling: logarithmic attention scaling counts a row's left padding as positions.

mlx_vlm/models/inkling/language.py:469 takes positions from the columns of the batch: beyond
log_scaling_n_floor a padded row is scaled as if it were longer than it is. The mask beside it
(line 456) gets left_padding. Mended by taking left padding off, row by row.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import _make_cache
from mlx_vlm.models.inkling.config import TextConfig
from mlx_vlm.models.inkling.language import LanguageModel

CONFIG = {
    **{"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 64, "intermediate_size": 16},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    **{"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8},
    **{"layer_types": ["hybrid"], "mlp_layer_types": ["dense"], "dense_intermediate_size": 32},
    **{"d_rel": 4, "rel_extent": 64, "sconv_kernel_size": 4, "sliding_window_size": 8},
    **{"log_scaling_alpha": 0.5, "tie_word_embeddings": False},
}
PROMPT = [7, 21, 40, 2, 60, 11, 38, 5]


def apart(floor: int | None) -> float:
    """How far the last logits of a padded row are from those of the row alone."""
    mx.random.seed(0)
    model = LanguageModel(TextConfig.from_dict({**CONFIG, "log_scaling_n_floor": floor}))
    model.update(tree_map(lambda w: w + 0.3 * mx.random.normal(w.shape), model.parameters()))
    alone = model(mx.array([PROMPT]), cache=model.make_cache()).logits[0, -1]
    padding = len(PROMPT)
    rows = mx.array([PROMPT * 2, [0] * padding + PROMPT])
    cache = _make_cache(model, [0, padding])
    return mx.abs(model(rows, cache=cache).logits[1, -1] - alone).max().item()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, inkling: 8 tokens beside 16, last logits against alone")
    found = {floor: apart(floor) for floor in (None, 32, 4)}
    for floor, worst in found.items():
        print(f"log_scaling_n_floor {floor}: expected 0, got {worst:.3g}")
    return 1 if max(found.values()) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
