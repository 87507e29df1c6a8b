"""A Hadamard pack can't be split over processes, neither by tensors nor by layers.

prism_hadamard_qwen35.Model inherits shard() of mlx_lm/models/qwen3_5.py:445, which makes sharded
layers of all projections: one whose inputs are rotated has a parameter that they lack, `signs`
(mlx_lm/models/prism_hadamard_qwen35.py:76), so it raises; a group of one process shows it, too.
Fixed by leaving packed layers whole, or by refusing to shard.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.models import prism_hadamard_qwen35 as prism

TEXT = {
    "model_type": "qwen3_5_text",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "head_dim": 32,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [2, 1, 1],
        "rope_theta": 1000.0,
        "partial_rotary_factor": 0.5,
    },
}
DOWN = {"path": "model.layers.0.mlp.down_proj", "embedding": False, "dtype": "float16"}
CONFIG = {
    "model_type": "prism_hadamard_qwen35",
    "schema_version": 2,
    "tensor_namespace": "mlx-vlm-qwen3_5",
    "gdn_activation_layout": "grouped",
    "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
    "modules": [{**DOWN, "block": 512}],
    "text_config": TEXT,
}


def main() -> int:
    mx.random.seed(0)
    model = prism.Model(prism.ModelArgs.from_dict(CONFIG))
    print(f"mlx-lm {version('mlx-lm')}: model.shard() of a Hadamard pack in a group of one process")
    try:
        model.shard(mx.distributed.init())
    except ValueError as error:
        if "signs" not in str(error):
            raise
        print(f"expected: a sharded model, or that it refuses; got {type(error).__name__}: {error}")
        return 1
    print("it is sharded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
