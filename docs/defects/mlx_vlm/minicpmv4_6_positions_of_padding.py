"""minicpmv4_6: prefill counts the padding of a row as positions, decode does not.

mlx_vlm/models/minicpmv4_6/minicpmv4_6.py:258 keeps positions on the language model and hands none
along, so a padded batch is given the offset of each row plus 0, 1, 2 and so on; the offset is
negative by the padding, but mlx_vlm/models/qwen3_5/language.py:1688 raises it to 0. Fixed by
returning position ids and rope deltas from get_input_embeddings, as qwen3_5 does.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.models.minicpmv4_6.language import LanguageModel
from mlx_vlm.models.minicpmv4_6.minicpmv4_6 import Model


class Decoder:
    """Only notes the positions that it is given."""

    fa_idx = 0

    def __init__(self) -> None:
        self.noted: list[mx.array] = []

    def __call__(self, ids: mx.array, *, cache: list, position_ids: mx.array, **_: object):
        new = mx.zeros((*ids.shape, 1))[:, None]
        cache[0].update_and_fetch(new, new)
        self.noted.append(position_ids[0])
        return new


def main() -> int:
    decoder = Decoder()
    model = LanguageModel.__new__(LanguageModel)
    nn.Module.__init__(model)
    object.__setattr__(model, "model", decoder)
    object.__setattr__(model, "lm_head", lambda x: x)
    model.args = SimpleNamespace(tie_word_embeddings=False)
    short = mx.array([[5, 6, 7, 8]])
    Model._set_position_state(SimpleNamespace(language_model=model), short)

    cache = [BatchKVCache([0, 3])]
    model(mx.array([[1] * 7, [0] * 3 + short[0].tolist()]), cache=cache)
    model(mx.array([[1], [9]]), cache=cache)
    want = [0, 1, 2, 3, 4]
    got = [*decoder.noted[0][1, 3:].tolist(), *decoder.noted[1][1].tolist()]
    print(f"mlx-vlm {version('mlx-vlm')}, minicpmv4_6: positions of 4 tokens beside 7, and of the")
    print(f"next: expected {want}, got {got}")
    return 1 if want != got else 0


if __name__ == "__main__":
    sys.exit(main())
