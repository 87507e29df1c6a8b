"""falcon_perception: no causal mask for text, and one request's state for all rows.

- Text is prefilled without any mask (mlx_vlm/models/falcon_perception/language.py:312): tokens see
  what follows in their piece, and padding. The answer depends on how the prompt is cut.
- Padded rows: line 288 raises negative offsets to 0, so that the prefill counts padding.
- Positions, cells and mask of an image stand on the model, as the last request left them
  (falcon_perception.py:139), and are cut by the offset of row 0 (language.py:366): other requests
  are given them too, and batches do not fit them. What a box's corner is encoded as is also row
  0's (lines 373 to 417).
Mended by a mask, plain offsets, and by handing the rest along with the request.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import KVCache
from mlx_vlm.models.falcon_perception.config import ModelConfig
from mlx_vlm.models.falcon_perception.falcon_perception import Model

CONFIG = {
    **{"model_type": "falcon_perception", "vocab_size": 64, "dim": 32, "n_layers": 2},
    **{"n_heads": 2, "head_dim": 16, "n_kv_heads": 1, "ffn_dim": 32, "max_seq_len": 64},
    **{"rope_theta": 1000.0, "spatial_patch_size": 4, "do_segmentation": False},
    **{"img_id": 51, "img_end_id": 52, "image_cls_token_id": 53, "coord_token_id": 60},
    **{"size_token_id": 61, "seg_token_id": 62, "coord_enc_dim": 8, "coord_dec_dim": 8},
    **{"coord_out_dim": 8, "size_enc_dim": 8, "size_dec_dim": 8, "size_out_dim": 8},
}
TEXT, IMAGE = [5, 9, 33, 7, 11, 2], [5, 53, 51, 51, 52, 8]


def answered(model: Model, *pieces: int) -> mx.array:
    """The logits after the text, prefilled in pieces of these lengths."""
    cache, done = [KVCache() for _ in range(CONFIG["n_layers"])], 0
    for piece in pieces:
        out = model.language_model(mx.array([TEXT[done : done + piece]]), cache=cache)
        done += piece
    return out.logits[0, -1]


def size(x: mx.array) -> float:
    return mx.abs(x).max().item()


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(dict(CONFIG)))
    model.update(tree_map(lambda w: w + 0.2 * mx.random.normal(w.shape), model.parameters()))
    one_by_one = answered(model, *[1] * len(TEXT))
    whole = size(answered(model, len(TEXT)) - one_by_one) / size(one_by_one)
    pixels, grid = mx.zeros((1, 4, 8, 3)), mx.array([[1, 2]])
    model.get_input_embeddings(mx.array([IMAGE]), pixels, image_grid_hw=grid)
    after = size(answered(model, *[1] * len(TEXT)) - one_by_one) / size(one_by_one)
    print(f"mlx-vlm {version('mlx-vlm')}: a text whole and one by one are {whole:.2g} apart")
    print(
        f"after another request's image was embedded it is {after:.2g} off; expected 0 both times"
    )
    return 0 if whole < 1e-3 and after < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
