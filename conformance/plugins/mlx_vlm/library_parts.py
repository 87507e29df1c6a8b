"""Looks up the parts of mlx-vlm that faults and mends change, when one is put in.

Nothing of the library is imported earlier, so a release that lacks a module still lists them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def part(name: str) -> Any:
    """The module ``mlx_vlm.<name>``."""
    return importlib.import_module(f"mlx_vlm.{name}")


def cache_class(name: str) -> Any:
    """The library's cache class of this name."""
    return getattr(part("models.cache"), name)


def uniform_class() -> Any:
    """The batch cache of uniformly quantized keys and values."""
    return cache_class("BatchQuantizedKVCache")


def turbo_class() -> Any:
    """The batch cache of TurboQuant."""
    return part("turboquant").BatchTurboQuantKVCache


def batch_class() -> Any:
    """The class of the decoding batch."""
    return part("generate.ar").GenerationBatch


def prompt_class() -> Any:
    """The class of the batch in prefill."""
    return part("generate.ar").PromptProcessingBatch


def generator_class() -> Any:
    """The class of the batch generator, which takes requests."""
    return part("generate.ar").BatchGenerator


def padding(caches: Sequence[Any]) -> Any:
    """Each row's left padding from the first cache that counts it; None if no cache does."""
    for cache in caches:
        found = getattr(cache, "left_padding", None)
        if found is not None and hasattr(cache, "offset"):
            return found
    return None
