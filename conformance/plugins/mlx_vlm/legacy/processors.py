"""Processors up to 0.5: transformers makes image processors in 0.4, mlx-lm logits processors.

Families describe their processors only for later releases, which make their own.
"""

from __future__ import annotations

import importlib
from typing import Any

# The message of transformers if it cannot make a processor, with what is missing.
_MISSING = {
    "torchvision": "torchvision",
    "Unrecognized image processor": "image_processor_type in its config",
}


def missing(error: ValueError) -> str | None:
    """What transformers says is missing, if ``error`` is its refusal to make a processor."""
    return next((name for text, name in _MISSING.items() if text in str(error)), None)


def logits_processor_maker() -> Any:
    """mlx-lm's function that makes logits processors."""
    return importlib.import_module("mlx_lm.sample_utils").make_logits_processors
