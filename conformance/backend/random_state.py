"""mlx's state of random numbers, which an error inside a compiled function spoils.

A function that is compiled with ``mx.random.state`` as its input has a placeholder there while it
is traced. An error that is raised then leaves the placeholder, and every later draw fails.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


def can_draw() -> bool:
    """Whether random numbers can be drawn; true where nothing has imported mlx."""
    mx = sys.modules.get("mlx.core")
    try:
        if mx is not None:
            mx.eval(mx.random.state)
    except RuntimeError:
        return False
    return True


@contextlib.contextmanager
def drawing_kept() -> Iterator[None]:
    """What follows can draw random numbers, too: a spoilt state is seeded anew."""
    try:
        yield
    finally:
        if not can_draw():
            sys.modules["mlx.core"].random.seed(0)
