"""Arguments for functions that take fewer of them in old releases."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from conformance.core.errors import Unsupported


def accepted(taker: Callable[..., Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """``wanted`` without the ``None`` values for which ``taker`` has no parameter.

    Raises:
        Unsupported: ``taker`` has no parameter for another value; the message names it.
    """
    taken = inspect.signature(taker).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return dict(wanted)
    lacking = [name for name, value in wanted.items() if name not in taken and value is not None]
    if lacking:
        what = getattr(taker, "__qualname__", repr(taker))
        raise Unsupported(f"this mlx-lm's {what} does not support {', '.join(lacking)}")
    return {name: value for name, value in wanted.items() if name in taken}
