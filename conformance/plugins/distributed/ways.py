"""The ways to split a model over processes; the index of files that ``sharded_load`` reads."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open

from conformance.core.origin import Origin

TENSOR, PIPELINE = "tensor", "pipeline"


_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


def write(origin: Origin, folder: Path) -> None:
    """Write the family's checkpoint with its index to a folder."""
    origin.write(folder)
    write_index(folder)


def write_index(folder: Path) -> None:
    """Write the index of the checkpoint in the folder."""
    with safe_open(folder / _WEIGHTS, framework="numpy") as file:
        places = dict.fromkeys(file.keys(), _WEIGHTS)
    (folder / _INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")
