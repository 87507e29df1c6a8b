"""Makes a cache from the state of another, in the two ways that the libraries have."""

from __future__ import annotations

import inspect
from typing import Any


def reloaded(cache: Any) -> Any:
    """By ``from_state``; mlx-vlm keeps some of it in a ``meta_state``."""
    cls = type(cache)
    if len(inspect.signature(cls.from_state).parameters) > 1:
        return cls.from_state(cache.state, cache.meta_state)
    return cls.from_state(cache.state)


def restored(cache: Any, empty: Any) -> Any:
    """By setting the state of an empty one."""
    empty.state = cache.state
    if hasattr(type(empty), "meta_state"):
        empty.meta_state = cache.meta_state
    return empty
