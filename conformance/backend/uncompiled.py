"""mlx without compiled functions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import mlx.core as mx


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Nothing is compiled: a function is not compiled anew for each number that it is given."""
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()
