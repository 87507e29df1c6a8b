"""Prefix caching: beside a request that reuses a prefix a new image is read as if it were text.

gemma4's images see themselves both ways, which is laid over the causal mask only if the mask is
square (mlx_vlm/models/gemma4/language.py:481). A new prompt that is prefilled in one batch with one
that reuses a prefix has more keys than columns: the mask is handed on as it is. Prefill is also cut
where the shortest row ends (mlx_vlm/generate/ar.py:2139), though the model forbids pieces.
Fixed by laying the image over the last columns, and by no cut where prefill_step_size is None.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.base import create_causal_mask
from mlx_vlm.models.gemma4.language import Gemma4TextModel

KINDS = mx.array([[0, 0, 1, 1, 1, 0]])  # a prompt: text, an image of three tokens, text
KEPT = 4  # columns of the prefix that the other row reuses


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: may the first token of an image see its last one?")
    model = Gemma4TextModel.__new__(Gemma4TextModel)
    found = {}
    for name, before in (("alone", 0), (f"beside {KEPT} kept columns", KEPT)):
        mask = create_causal_mask(KINDS.shape[1], before)[None, None]
        mask = model._apply_blockwise_bidirectional_overlay(mask, KINDS)
        found[name] = bool(mask[0, 0, 2, before + 4].item())
        print(f"{name}: {found[name]}")
    print("expected: True both times")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
