"""What faults of mlx-vlm share: the library's parts, found when a fault is put in.

Nothing of the library is imported before: a release that lacks a module still lists its faults.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from conformance.core.faults.declaration import fault

mlx_vlm_fault = partial(fault, engine="mlx_vlm")

# With any cache but DeepSeek-V4.1's, whose attention gets one row at a time, without its padding.
PADDED = ("cache:*KVCache|cache:ArraysCache|cache:PoolingCache|cache:Z1TCache",)
MROPE = ("rope:M-RoPE",)
MEDIUM = "modality:image|modality:video|modality:audio"
SHOWN = "modality:image|modality:video"
ROTATING = ("cache:RotatingKVCache",)
ARRAYS = ("cache:ArraysCache",)
# Quantized at all, and by whole groups of elements.
QUANTIZABLE = ("cache:KVCache", "quantizable")
GROUPED = ("cache:KVCache", "quantizable:*")


def part(name: str) -> Any:
    """The module ``mlx_vlm.<name>``."""
    return importlib.import_module(f"mlx_vlm.{name}")


def cache_class(name: str) -> Any:
    """The library's cache of that name."""
    return getattr(part("models.cache"), name)


def uniform_class() -> Any:
    """The batch cache of uniformly quantized keys and values."""
    return cache_class("BatchQuantizedKVCache")


def turbo_class() -> Any:
    """The batch cache of TurboQuant."""
    return part("turboquant").BatchTurboQuantKVCache


def batch_class() -> Any:
    """The class of the batch that decodes."""
    return part("generate.ar").GenerationBatch


def prompt_class() -> Any:
    """The class of the batch in prefill."""
    return part("generate.ar").PromptProcessingBatch


def generator_class() -> Any:
    """The class that takes requests."""
    return part("generate.ar").BatchGenerator


def padding(caches: Sequence[Any]) -> Any:
    """Each row's left padding by the first cache that counts it; None if none does."""
    for cache in caches:
        found = getattr(cache, "left_padding", None)
        if found is not None and hasattr(cache, "offset"):
            return found
    return None
