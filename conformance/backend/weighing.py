"""What caches hold beside the numbers that they count: buffers of others, and graphs."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from conformance.core.trace import KeptCache


def pending_edges(caches: list[Any]) -> int:
    """Edges of the graph that the caches' arrays still wait for; computed arrays have none."""
    found = list(arrays(caches))
    if not found:
        return 0
    text = io.StringIO()
    mx.export_to_dot(text, *found)
    return text.getvalue().count("->")


def weigh(request_id: str, caches: list[Any], *, computed: bool) -> KeptCache:
    """Empty ``caches``, which nobody else may hold, and see how many bytes that sets free.

    Args:
        computed: compute its arrays first; otherwise they are taken as they were left.
    """
    if computed:
        mx.eval(list(arrays(caches)))
    mx.synchronize()
    gc.collect()  # else a batch in a cycle of references holds what is looked for
    counted = sum(int(cache.nbytes) for cache in caches)
    before = mx.get_active_memory()
    caches.clear()
    return KeptCache(request_id, counted, before - mx.get_active_memory())


def arrays(value: Any) -> Iterator[mx.array]:
    """All arrays of caches, of lists of them and of what else they keep."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays(item)
    elif hasattr(type(value), "state"):
        yield from arrays(list(vars(value).values()))
