"""Processors up to 0.5: those of images are made by transformers in 0.4, those of logits by mlx-lm.

Families say of their processors only what later releases read, which make their own.
"""

from __future__ import annotations

import importlib
from typing import Any

# What transformers says where it can't make a processor, and what it misses.
_MISSING = {
    "torchvision": "torchvision",
    "Unrecognized image processor": "image_processor_type in its config",
}


def missing(error: ValueError) -> str | None:
    """What transformers misses, if ``error`` is its refusal to make a processor."""
    return next((name for text, name in _MISSING.items() if text in str(error)), None)


def logits_processor_maker() -> Any:
    """The function that makes logits processors: mlx-lm's."""
    return importlib.import_module("mlx_lm.sample_utils").make_logits_processors
