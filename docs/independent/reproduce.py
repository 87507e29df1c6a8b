"""A disagreement of mlx-lm with transformers, without this project: torch, transformers, mlx-lm.

``python docs/independent/reproduce.py starcoder2`` makes a tiny transformers model with random
weights, saves it, loads the folder with mlx-lm, and prints the logits of both after a short prompt
and how far they are apart: once as it is, and once with the cause changed on one side. The second
difference is rounding, the first is not.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
import transformers
from mlx_lm.utils import load_model

FAMILIES = Path(__file__).parents[2] / "conformance" / "plugins" / "mlx_lm" / "families"
PROMPT = [7, 3, 11, 5, 2, 13, 17, 4, 19, 23, 6, 29]

# The cause of each, as a field that transformers gets; or, after "both", that both get.
CAUSES: dict[str, dict[str, Any]] = {
    "dbrx": {"rope_theta": 1000.0},
    "falcon_h1": {"both": {"mamba_n_groups": 1}},
    "gemma": {"hidden_act": "gelu_python"},
    "glm": {"partial_rotary_factor": 1.0},
    "gpt_bigcode": {"activation_function": "gelu"},
    "gpt_neox": {"hidden_act": "gelu_pytorch_tanh"},
    "granitemoehybrid": {"both": {"mamba_n_groups": 1}},
    "jamba": {"both": {"num_experts_per_tok": 4}},
    "mamba2": {"both": {"n_groups": 1}},
    "starcoder2": {"hidden_act": "gelu"},
}


def logits(config: dict[str, Any], other: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Logits after the prompt, of transformers with ``other`` and of mlx-lm with ``config``."""
    torch.manual_seed(0)
    tokens = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    made = kind.from_dict({**tokens, **other})
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:  # larger than they are by default, so that attention is not uniform
                value.copy_(torch.randn_like(value) * 1.5 / value.shape[-1] ** 0.5)
        theirs = model(input_ids=torch.tensor([PROMPT])).logits[0, -1].numpy()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        (Path(folder) / "config.json").write_text(json.dumps(config))
        ours = load_model(Path(folder))[0](mx.array([PROMPT]))[0, -1]
    return theirs, np.array(ours)


def show(label: str, theirs: np.ndarray, ours: np.ndarray) -> None:
    """One line: the likeliest token and its logit on both sides, and the largest difference."""
    top = int(theirs.argmax())
    print(
        f"{label}: transformers {top} ({theirs[top]:.6f}), mlx-lm {int(ours.argmax())} "
        f"({ours[top]:.6f}), largest difference {abs(theirs - ours).max():.1e}"
    )


def main() -> None:
    """Show each cause that was asked for, or all."""
    transformers.logging.set_verbosity_error()
    for name in sys.argv[1:] or CAUSES:
        config = json.loads((FAMILIES / f"{name}.json").read_text())
        del config["conformance"]
        show(f"{name}, as it is", *logits(config, config))
        cause = dict(CAUSES[name])
        config = {**config, **cause.pop("both", {})}
        show(f"{name}, changed ", *logits(config, {**config, **cause}))


if __name__ == "__main__":
    main()
