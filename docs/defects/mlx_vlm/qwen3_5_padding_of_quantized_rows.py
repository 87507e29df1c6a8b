"""qwen3_5: where keys and values are quantized, a shorter row attends to its padding.

In a decode step of left-padded rows the attention mask is the mark ``"left_padded_decode"``
(mlx_vlm/models/qwen3_5/language.py:234). ``_qwen3_5_left_padded_attention`` gives up for caches
with ``bits`` (line 830), and the attention goes on with the mask that was already set to ``None``
(line 953): nothing hides the padded columns. All models built on this one have it.
Fixed by a mask from the cache where the special path gives up.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models import qwen3_5
from mlx_vlm.models.qwen3_5.config import ModelConfig, TextConfig, VisionConfig

VOCAB = 64
SHORT, LONG = list(range(1, 6)), list(range(11, 31))
TEXT = {
    "model_type": "qwen3_5",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "head_dim": 32,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "rope_parameters": {
        "type": "default",
        "mrope_section": [2, 1, 1],
        "rope_theta": 1000.0,
        "partial_rotary_factor": 0.25,
    },
}
VISION = {
    "model_type": "qwen3_5",
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "out_hidden_size": 64,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 16,
}


class Endless:
    """A stopping criterion that never holds."""

    def add_eos_token_ids(self, _: object = None) -> None: ...

    def __call__(self, _: int) -> bool:
        return False


def decode(model, prompts: list[list[int]], bits: int | None) -> list[list[float]]:
    """The logprobs of the first prompt's tokens."""
    generator = BatchGenerator(
        model.language_model,
        SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=Endless())),
        top_logprobs_k=VOCAB,
        kv_bits=bits,
        kv_group_size=32,
    )
    uids = []
    for prompt in prompts:
        embedded = model.get_input_embeddings(mx.array([prompt])).to_dict()
        given = {name: value for name, value in embedded.items() if value is not None}
        uids += generator.insert([prompt], max_tokens=3, prompt_kwargs=[given])
    rows = []
    while generator.has_work:
        for response in generator.next()[1]:
            if response.uid == uids[0]:
                rows.append([value for _, value in sorted(response.top_logprobs)])
    generator.close()
    return rows


def main() -> int:
    mx.random.seed(0)
    text, vision = TextConfig.from_dict(TEXT), VisionConfig.from_dict(VISION)
    model = qwen3_5.Model(ModelConfig(text, vision, "qwen3_5", image_token_id=VOCAB - 1))
    model.update(tree_map(lambda w: w + 0.2 * mx.random.normal(w.shape), model.parameters()))
    worst = {}
    for bits in (None, 8):
        alone, beside = decode(model, [SHORT], bits), decode(model, [SHORT, LONG], bits)
        worst[bits] = max(abs(a - b) for a, b in zip(alone[0], beside[0], strict=True))
    print(f"mlx-vlm {version('mlx-vlm')}: prompt of {len(SHORT)} alone and beside {len(LONG)}")
    for bits, apart in worst.items():
        print(f"kv_bits={bits}: {apart:.3g} nats apart")
    print("expected: 0 up to rounding")
    return 1 if worst[8] > 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
