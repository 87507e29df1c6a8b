"""nemotron-nas makes a cache for layers whose attention is a linear map, and never fills it.

mlx_lm/models/nemotron-nas.py:395 gives a KVCache to each layer with ``self_attn is not None``; with
``replace_with_linear`` (as in Nemotron-51B) that is a plain linear map. Its batch cache has no keys
when rows are joined, filtered, finalised after padding, or extracted at the end: even one request
alone fails in BatchGenerator. And where layer 0 is such a layer, line 347 takes the mask from the
empty cache. Mended by counting only ``Attention`` layers in lines 333, 351 and 395.
"""

import importlib
import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, generate_step

nas = importlib.import_module("mlx_lm.models.nemotron-nas")
MLP = {"ffn_mult": 1.0}
CONFIG = {
    "model_type": "nemotron-nas",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "block_configs": [
        {"attention": {"n_heads_in_group": 2}, "ffn": MLP},
        {"attention": {"replace_with_linear": True}, "ffn": MLP},
    ],
}


def batched(model: nas.Model, prompts: list[list[int]]) -> str:
    generator = BatchGenerator(model)
    generator.insert(prompts, max_tokens=[3] * len(prompts))
    tokens = []
    try:
        while responses := generator.next_generated():
            tokens += [r.token for r in responses]
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        generator.close()
    return f"{len(tokens)} tokens"


def main() -> int:
    mx.random.seed(0)
    model = nas.Model(nas.ModelArgs.from_dict(CONFIG))
    prompt = mx.array([5, 9, 33])
    caches = model.make_cache()
    alone = [token for token, _ in generate_step(prompt, model, max_tokens=3, prompt_cache=caches)]
    print(f"mlx-lm {version('mlx-lm')}, nemotron-nas, layers: attention, linear")
    print(f"after {len(alone)} tokens by generate_step: offsets {[c.offset for c in caches]}")
    found = [batched(model, [[5, 9, 33]]), batched(model, [[5, 9, 33], [7, 21]])]
    print(f"batch of 1: expected 3 tokens, got {found[0]}")
    print(f"batch of 2: expected 6 tokens, got {found[1]}")
    return 0 if found == ["3 tokens", "6 tokens"] else 1


if __name__ == "__main__":
    sys.exit(main())
