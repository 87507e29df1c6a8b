"""In a pipeline a stage reads its input in the dtype of its own embeddings.

mlx_lm/models/qwen3_5.py:292 receives what is like the embeddings of its tokens. Those of a Hadamard
pack are float16 whatever the model's dtype is (mlx_lm/models/prism_hadamard_qwen35.py:106), and the
stage before sends what its layers gave, here float32: twice as many bytes as are read. The rest
stays in the ring, where every later message begins with it. Fixed by sending the dtype that is
received.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import prism_hadamard_qwen35 as prism

LAYERS = 2
TEXT = {
    "model_type": "qwen3_5_text",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": LAYERS,
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
PACKED = {"path": "model.embed_tokens", "embedding": True, "dtype": "float16", "block": 0}
CONFIG = {
    "model_type": "prism_hadamard_qwen35",
    "schema_version": 2,
    "tensor_namespace": "mlx-vlm-qwen3_5",
    "gdn_activation_layout": "grouped",
    "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
    "modules": [PACKED],
    "text_config": TEXT,
}


def model():
    mx.random.seed(0)
    made = prism.Model(prism.ModelArgs.from_dict(CONFIG))

    def drawn(array):
        if array.dtype == mx.uint32:
            return mx.random.randint(0, 2**31 - 1, array.shape).astype(mx.uint32)
        return (0.2 * mx.random.normal(array.shape)).astype(array.dtype)

    made.update(tree_map(drawn, made.parameters()))
    mx.eval(made.parameters())
    return made


def rank() -> int:
    """One stage: how far its logits are from those of the whole model."""
    tokens = mx.array([[7, 21, 40, 3]])
    right = model()(tokens)
    stage = model()
    embeddings = stage.language_model.model.embed_tokens(tokens)
    layer = stage.language_model.model.layers[0]
    given = layer(embeddings)
    mx.eval(right, given)
    stage.model.pipeline(mx.distributed.init(strict=True, backend="ring"))
    found = stage(tokens)
    off = mx.abs(found - right).max().item()
    print(json.dumps({"off": off, "read": str(embeddings.dtype), "sent": str(given.dtype)}))
    return 0


def main() -> int:
    with socket.socket() as one, socket.socket() as two, tempfile.TemporaryDirectory() as folder:
        for probe in (one, two):
            probe.bind(("127.0.0.1", 0))
        hosts = [[f"127.0.0.1:{probe.getsockname()[1]}"] for probe in (one, two)]
        file = Path(folder, "hosts.json")
        file.write_text(json.dumps(hosts), encoding="utf-8")
        one.close()
        two.close()
        stages = [
            subprocess.Popen(
                [sys.executable, __file__, "rank"],
                env={**os.environ, "MLX_HOSTFILE": str(file), "MLX_RANK": str(number)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        try:
            said = [stage.communicate(timeout=100)[0] for stage in stages]
        finally:
            for stage in stages:
                stage.kill()
    if any(stage.returncode for stage in stages):
        print("the two processes could not be run here")
        return 2
    found = json.loads(said[0])
    print(f"mlx-lm {version('mlx-lm')}: a Hadamard pack in a pipeline of two processes")
    print(f"the second stage reads {found['read']}; the first sends {found['sent']}")
    print(f"logits are {found['off']:.3g} from those of one process; expected: less than 0.001")
    return 0 if found["off"] < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(rank() if sys.argv[1:] == ["rank"] else main())
