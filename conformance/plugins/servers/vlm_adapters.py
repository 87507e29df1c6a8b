"""Tiny LoRA adapters for served checkpoints of mlx-vlm, and its single stream with one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx_vlm.trainer.peft.utils import apply_lora_layers, get_peft_model
from mlx_vlm.utils import load_model

from conformance.core.engine_options import EngineOptions
from conformance.core.origin import Origin
from conformance.core.schedule import Request
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.servers.adapters import PARAMETERS, drawn


def write_adapter(checkpoint: Path, folder: Path, seed: int) -> None:
    """Write an adapter for the linear layers of the checkpoint's decoder, drawn from the seed."""
    rank, scale, dropout = (PARAMETERS[name] for name in ("rank", "scale", "dropout"))
    model = load_model(checkpoint)
    get_peft_model(model, None, int(rank), rank * scale, dropout, verbose=False)
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), drawn(model, seed))
    keys = sorted({name.rpartition(".")[0] for name in drawn(model, seed)})
    config = {"fine_tune_type": "lora", "lora_parameters": {**PARAMETERS, "keys": keys}}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def adapted_stream(origin: Origin, request: Request, options: EngineOptions) -> tuple[int, ...]:
    """The library's single stream of a request, from the model with the request's adapter."""
    assert request.asked is not None
    library = MlxVlm()
    with tempfile.TemporaryDirectory(prefix="conformance-adapter-") as name:
        checkpoint = Path(name)
        origin.write(checkpoint)
        write_adapter(checkpoint, checkpoint / "adapter", origin.seed + request.asked.adapter)
        loaded = library.load(origin.family, dtype=origin.dtype, seed=origin.seed)
        apply_lora_layers(loaded.model, checkpoint / "adapter")
        loaded.model.eval()
        found = library.single_stream(loaded, request, options=options, steps=request.max_tokens)
        return found.stream.tokens
