"""Proves that batched decoding on MLX gives what single-stream decoding gives.

The architecture is drawn in ``ARCHITECTURE.md``; the terms used in names are defined there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.proving import assert_batching_conforms

__all__ = ["__version__", "assert_batching_conforms"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``assert_batching_conforms``, imported when it is first asked for: it needs mlx."""
    if name == "assert_batching_conforms":
        return importlib.import_module("conformance.proving").assert_batching_conforms
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
