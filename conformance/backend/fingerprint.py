"""A hash of a loaded model's parameters, equal for models with the same parameters."""

from __future__ import annotations

import hashlib

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten


def fingerprint(model: Module) -> str:
    """SHA-256 of the path, dtype, shape and bits of all parameters, in the order of their paths."""
    digest = hashlib.sha256()
    found: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for path, value in sorted(found.items()):
        digest.update(f"{path} {value.dtype} {tuple(value.shape)}\n".encode())
        bits = mx.contiguous(value).reshape(-1)
        raw = bits.astype(mx.uint8) if value.dtype == mx.bool_ else bits.view(mx.uint8)
        digest.update(np.array(raw).tobytes())
    return digest.hexdigest()
