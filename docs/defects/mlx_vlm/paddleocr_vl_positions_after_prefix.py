"""paddleocr_vl counts positions from 0 again behind a prefix that is reused.

To embed a text makes the language model forget its rope deltas (mlx_vlm/models/paddleocr_vl/
paddleocr_vl.py:34). With none, mlx_vlm/models/paddleocr_vl/language.py:432 takes any forward pass
for the beginning of a prompt, whatever the cache's offset: what follows a prefix from the prefix
cache is rotated as if it stood at position 0. Fixed by adding the offset even without deltas.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.models.paddleocr_vl import Model, ModelConfig, TextConfig, VisionConfig

CONFIG = {
    **{"model_type": "paddleocr_vl", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 64},
    **{"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 1000.0, "use_bias": False},
    **{"max_position_embeddings": 2048, "tie_word_embeddings": False, "image_token_id": 60},
    **{"video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63},
    "rope_scaling": {"rope_type": "default", "type": "default", "mrope_section": [2, 3, 3]},
    "vision_config": {
        **{"model_type": "paddleocr_vl", "hidden_size": 16, "intermediate_size": 16},
        **{"num_hidden_layers": 1, "num_attention_heads": 2, "num_channels": 3},
        **{"image_size": 8, "patch_size": 4, "spatial_merge_size": 2},
        **{"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
    },
}
PROMPT = mx.array([[5, 9, 33, 7, 11, 2, 14, 8]])
PREFIX = 4


def last(model: Model, pieces: list[mx.array]) -> mx.array:
    """The logits after a prompt, each piece of which is embedded as a request of its own."""
    cache = make_prompt_cache(model.language_model)
    for piece in pieces:
        made = model.get_input_embeddings(piece)
        out = model.language_model(piece, inputs_embeds=made.inputs_embeds, cache=cache)
    return out.logits[0, -1]


def main() -> int:
    mx.random.seed(0)
    config = ModelConfig.from_dict(CONFIG)
    config.vision_config = VisionConfig.from_dict(CONFIG["vision_config"])
    config.text_config = TextConfig.from_dict(CONFIG)
    model = Model(config)
    whole = last(model, [PROMPT])
    reused = last(model, [PROMPT[:, :PREFIX], PROMPT[:, PREFIX:]])
    off = mx.abs(whole - reused).max().item() / mx.abs(whole).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}: {PREFIX} of {PROMPT.shape[1]} tokens reused")
    print(f"logits are {off:.2g} of their size from those of the whole prompt; expected: 0")
    return 1 if off > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
