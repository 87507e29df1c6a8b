"""mlx's random state, which an error inside a compiled function destroys.

A function compiled with ``mx.random.state`` as its input has a placeholder there while it is
traced. An error then leaves the placeholder in place, and every later draw fails.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


def can_draw() -> bool:
    """Whether random numbers can be drawn; true if mlx was not imported."""
    mx = sys.modules.get("mlx.core")
    try:
        if mx is not None:
            mx.eval(mx.random.state)
    except RuntimeError:
        return False
    return True


def seed(number: int) -> None:
    """Seed the random numbers of libraries; nothing if mlx was not imported."""
    if (mx := sys.modules.get("mlx.core")) is not None:
        mx.random.seed(number)


@contextlib.contextmanager
def drawing_kept() -> Iterator[None]:
    """Make sure that later code can draw random numbers: a destroyed state is seeded again."""
    try:
        yield
    finally:
        if not can_draw():
            sys.modules["mlx.core"].random.seed(0)
