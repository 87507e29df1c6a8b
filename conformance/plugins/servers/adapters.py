"""Tiny LoRA adapters for served checkpoints of mlx-lm, and the library's single stream with one."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import load_model

from conformance.core.engine_options import EngineOptions
from conformance.core.origin import Origin
from conformance.core.schedule import Request

PARAMETERS = {"rank": 4, "scale": 1.0, "dropout": 0.0}
_DRAWN = ("lora_a", "lora_b")


def write_adapter(checkpoint: Path, folder: Path, seed: int) -> None:
    """Write an adapter for all linear layers of the checkpoint, drawn from the seed.

    Its product is about as large as the weights it is added to, so that answers change.
    """
    model, _ = load_model(checkpoint)
    count = len(model.layers)
    linear_to_lora_layers(model, count, dict(PARAMETERS))
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), drawn(model, seed))
    config = {"fine_tune_type": "lora", "num_layers": count, "lora_parameters": PARAMETERS}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def drawn(model: Any, seed: int) -> dict[str, mx.array]:
    """The adapter's weights by their names in the model, drawn from the seed."""
    rng = np.random.default_rng(seed)
    parameters: Any = tree_flatten(model.parameters())
    return {
        name: mx.array(rng.standard_normal(like.shape) / math.sqrt(like.shape[0])).astype(
            like.dtype
        )
        for name, like in parameters
        if name.rpartition(".")[2] in _DRAWN
    }


def adapted_stream(origin: Origin, request: Request, options: EngineOptions) -> tuple[int, ...]:
    """The library's single stream of a request, from the model with the request's adapter."""
    assert request.asked is not None
    with tempfile.TemporaryDirectory(prefix="conformance-adapter-") as name:
        checkpoint = Path(name)
        origin.write(checkpoint)
        write_adapter(checkpoint, checkpoint / "adapter", origin.seed + request.asked.adapter)
        model, _ = load_model(checkpoint)
        model = load_adapters(model, str(checkpoint / "adapter"))
        model.eval()
        stream = generate_step(
            mx.array(request.prompt),
            model,
            max_tokens=request.max_tokens,
            prefill_step_size=options.prefill_step_size,
        )
        return tuple(int(token) for token, _ in stream)
