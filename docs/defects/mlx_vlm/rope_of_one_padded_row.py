"""The Qwen-VL and GLM-V models and falcon_ocr count the padding of a row left alone in its batch.

mlx_vlm/models/qwen2_5_vl/language.py:434 takes the offset of each row only where there are two
rows or more; so do qwen2_vl:431, qwen3_vl_moe:552, qwen3_omni_moe:546, qwen3_5:1686, glm4v:502,
glm4v_moe:561, glm_ocr:465, paddleocr_vl:412, ernie4_5_moe_vl:591 and falcon_ocr:372. A batch of
one row has a vector of one offset; then ``cache_position_offset`` answers with the columns of the
batch, padding included, so the row goes on at later positions than those of its cached keys. It
comes to that when the longer prompts that are prefilled with a short one are cancelled. Fixed by
asking whether the offset is an array, not how long it is.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.cache import BatchKVCache

FAMILIES = [
    *("qwen2_vl", "qwen2_5_vl", "qwen3_vl_moe", "qwen3_omni_moe", "qwen3_5"),
    *("glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl", "ernie4_5_moe_vl", "falcon_ocr"),
]
PADDING, COLUMNS = 4, 6


def positions(family: str, rows: int) -> list[int]:
    """The position that the next token of row 0 is given, in a batch of so many rows."""
    cls = import_module(f"mlx_vlm.models.{family}.language").LanguageModel
    model = cls.__new__(cls)
    nn.Module.__init__(model)
    model._rope_deltas, model._position_ids = mx.zeros((rows, 1), mx.int32), None
    model.args = SimpleNamespace(tie_word_embeddings=False, full_attention_interval=1)
    noted: list[mx.array] = []

    def decoder(ids: mx.array, **given: mx.array) -> mx.array:
        noted.append(given["position_ids"])
        return mx.zeros((*ids.shape, 1))

    decoder.fa_idx, decoder.embed_tokens = 0, SimpleNamespace(weight=mx.zeros(1))
    object.__setattr__(model, "model", decoder)
    object.__setattr__(model, "lm_head", lambda x: x)
    cache = [BatchKVCache([PADDING] + [0] * (rows - 1))]
    done = mx.zeros((rows, 1, COLUMNS, 1))
    cache[0].update_and_fetch(done, done)
    model(mx.ones((rows, 1), mx.int32), cache=cache, rope_deltas=model._rope_deltas)
    given = noted[0][None] if noted[0].ndim == 2 else noted[0]
    axis = -1 if family == "ernie4_5_moe_vl" else 0
    return mx.moveaxis(given, axis, 0)[:, 0].flatten().tolist()


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: {COLUMNS} columns done, {PADDING} of them padding")
    wrong = 0
    for family in FAMILIES:
        expected, got = positions(family, 2), positions(family, 1)
        print(f"{family}: expected positions {expected}, as beside another row; got {got} alone")
        wrong += got != expected
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
