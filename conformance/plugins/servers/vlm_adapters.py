"""Tiny LoRA adapters for served checkpoints of mlx-vlm, and its single stream with one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_vlm.trainer.peft.utils import get_peft_model
from mlx_vlm.utils import load_model

from conformance.core.engine_options import EngineOptions
from conformance.core.origin import Origin
from conformance.core.schedule import Request
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.servers.adapters import PARAMETERS, drawn


def write_adapter(checkpoint: Path, folder: Path, seed: int) -> None:
    """Write an adapter for the linear layers of the checkpoint's decoder, drawn from the seed."""
    weights = _adapt(load_model(checkpoint), seed)
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    keys = sorted({name.rpartition(".")[0] for name in weights})
    config = {"fine_tune_type": "lora", "lora_parameters": {**PARAMETERS, "keys": keys}}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def _adapt(model: Any, seed: int) -> dict[str, mx.array]:
    """Put the adapter of the seed on the model; returns its weights by name."""
    rank, scale, dropout = (PARAMETERS[name] for name in ("rank", "scale", "dropout"))
    get_peft_model(model, None, int(rank), rank * scale, dropout, verbose=False)
    weights = drawn(model, seed)
    model.load_weights(list(weights.items()), strict=False)
    model.eval()
    return weights


def adapted_stream(origin: Origin, request: Request, options: EngineOptions) -> tuple[int, ...]:
    """The library's single stream of a request, from the model with the request's adapter."""
    assert request.asked is not None
    library = MlxVlm()
    loaded = library.load(origin.family, dtype=origin.dtype, seed=origin.seed)
    _adapt(loaded.model, origin.seed + request.asked.adapter)
    adapted = dataclasses.replace(loaded)  # a run begins with what is loaded when this is made
    found = library.single_stream(adapted, request, options=options, steps=request.max_tokens)
    return found.stream.tokens
