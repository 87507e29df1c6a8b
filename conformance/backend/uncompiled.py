"""mlx without compiled functions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import mlx.core as mx


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Compile nothing inside the block: otherwise a function is compiled for each new number."""
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()
