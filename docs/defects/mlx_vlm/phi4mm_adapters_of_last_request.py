"""phi4mm merges the adapters of the request that was embedded last into the one model of all.

``get_input_embeddings`` calls ``set_modality`` (mlx_vlm/models/phi4mm/phi4mm.py:83), which writes
the base weights with the adapters for images or for sounds into the language model. Requests that
decode go on with other weights than those that made their keys, and a text after a sound is
answered with the sound's adapters, as text alone sets nothing back (line 82). Any server that
loads a checkpoint with its adapters is hit. Fixed by adapters that are chosen row by row.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_vlm.models.phi4mm import Model, ModelConfig

CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "mm_hidden_size": 32,
    "speech_lora": {"r": 2, "lora_alpha": 4},
    "vision_lora": {"r": 2, "lora_alpha": 4},
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "patch_size": 4,
        "image_size": 16,
    },
    "audio_processor": {
        "config": {
            "attention_dim": 32,
            "attention_heads": 2,
            "num_blocks": 1,
            "linear_units": 48,
            "conv_channels": 8,
            "ext_pw_out_channel": 32,
            "depthwise_seperable_out_channel": 32,
        }
    },
}
TEXT, SOUND = [1, 2, 3, 4], 200011


def adapted(weights: dict) -> dict:
    """The weights as in the released checkpoint: base layers, and adapters for both media."""
    given = {}
    for name, value in weights.items():
        if not name.endswith("_proj.weight") or not name.startswith("language_model."):
            given[name] = value
            continue
        stem = name.removeprefix("language_model.").removesuffix(".weight")
        given[f"{stem}.base_layer.weight"] = value
        for kind in ("vision", "speech"):
            given[f"{stem}.lora_A.{kind}.weight"] = 0.3 * mx.random.normal((2, value.shape[1]))
            given[f"{stem}.lora_B.{kind}.weight"] = 0.3 * mx.random.normal((value.shape[0], 2))
    return given


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG))
    weights = model.sanitize(adapted(dict(tree_flatten(model.parameters()))))
    model.load_weights(list(weights.items()))
    text = mx.array([TEXT])
    before = model.language_model(text).logits[0, -1]
    mx.eval(before)
    sound = {"input_audio_embeds": mx.random.normal((1, 16, 80))}
    model.get_input_embeddings(mx.array([[5, SOUND, SOUND, 6]]), **sound)
    model.get_input_embeddings(text)
    after = model.language_model(text).logits[0, -1]
    apart = mx.abs(after - before).max().item()
    print(f"mlx-vlm {version('mlx-vlm')}, phi4mm: the logits of a text, before and after a sound")
    print(f"expected difference: 0; got {apart:.3g}")
    return 1 if apart > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
