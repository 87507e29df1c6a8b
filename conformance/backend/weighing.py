"""The memory of caches beyond their own count: buffers of others, and graphs."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from conformance.core.trace import KeptCache


def pending_edges(caches: list[Any]) -> int:
    """Edges of the graph that the caches' arrays depend on; computed arrays have none."""
    found = list(arrays(caches))
    if not found:
        return 0
    text = io.StringIO()
    mx.export_to_dot(text, *found)
    return text.getvalue().count("->")


def weigh(request_id: str, caches: list[Any], *, computed: bool) -> KeptCache:
    """Empty ``caches``, to which there may be no other reference, and measure the freed bytes.

    Args:
        computed: compute its arrays first; otherwise they are freed as they are.
    """
    if computed:
        mx.eval(list(arrays(caches)))
    mx.synchronize()
    gc.collect()  # else a batch in a reference cycle keeps the arrays alive
    counted = sum(int(cache.nbytes) for cache in caches)
    before = mx.get_active_memory()
    caches.clear()
    return KeptCache(request_id, counted, before - mx.get_active_memory())


def arrays(value: Any) -> Iterator[mx.array]:
    """All arrays of caches, of lists of caches, and of their attributes."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays(item)
    elif hasattr(type(value), "state"):
        yield from arrays(list(vars(value).values()))
