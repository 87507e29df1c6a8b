"""gemma3n: embeddings of a prompt are not scaled, those of generated tokens are.

mlx_vlm/models/gemma3n/gemma3n.py:122 takes the bare rows of embed_tokens. The language model scales
by the root of the hidden size (mlx_vlm/models/gemma3n/language.py:479), but only when it is given
ids. Every prompt goes through get_input_embeddings, every generated token is given as ids. Mended
by scaling in gemma3n.py, as gemma3 does.
"""

import sys
from contextlib import suppress
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.models.gemma3n.gemma3n import Model
from mlx_vlm.models.gemma3n.language import Gemma3Model

HIDDEN = 16


def main() -> int:
    mx.random.seed(0)
    embed = nn.Embedding(32, HIDDEN)
    inner = SimpleNamespace(embed_tokens=embed, get_per_layer_inputs=lambda ids: ids)
    model = SimpleNamespace(
        language_model=SimpleNamespace(model=inner), vocab_size_per_layer_input=32
    )
    ids = mx.array([[5, 6, 7]])
    prompt = Model.get_input_embeddings(model, ids).inputs_embeds

    seen = []  # what the language model makes of the same ids
    decoder = SimpleNamespace(embed_tokens=embed, hidden_size=HIDDEN)

    def stop(hidden: mx.array, _: mx.array) -> None:
        seen.append(hidden)
        raise StopIteration

    decoder.get_per_layer_inputs = lambda ids: ids
    decoder.project_per_layer_inputs = stop
    with suppress(StopIteration):
        Gemma3Model.__call__(decoder, ids)
    ratio = (mx.abs(seen[0]).mean() / mx.abs(prompt).mean()).item()
    print(f"mlx-vlm {version('mlx-vlm')}, gemma3n, hidden size {HIDDEN}: the same ids as generated")
    print(f"tokens and as a prompt, ratio of their embeddings: expected 1, got {ratio:.3g}")
    return 1 if abs(ratio - 1) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
