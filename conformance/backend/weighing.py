"""The memory of caches beyond their own count: other arrays' buffers, and graphs."""

from __future__ import annotations

import gc
import io
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import arrays, leaves, places
from conformance.core.trace import KeptCache, KeptLayer


def pending_edges(caches: list[Any]) -> int:
    """Edges of the graph that the caches' arrays depend on; computed arrays have none."""
    found = list(arrays(caches))
    if not found:
        return 0
    text = io.StringIO()
    mx.export_to_dot(text, *found)
    return text.getvalue().count("->")


def weigh(request_id: str, caches: list[Any], *, computed: bool) -> KeptCache:
    """Empty ``caches``, which nothing else may refer to, and measure the freed bytes.

    Layer by layer: in the total, a small layer that holds too much would not show among large ones.

    Args:
        computed: evaluate its arrays first; otherwise they are freed as they are.
    """
    if computed:
        mx.eval(list(arrays(caches)))
    mx.synchronize()
    gc.collect()  # otherwise a batch in a reference cycle keeps the arrays alive
    counted = sum(int(cache.nbytes) for cache in caches)
    numbers = [len(list(arrays(leaf))) for leaf in leaves(caches)]
    reported = [int(leaf.nbytes) for leaf in leaves(caches)]
    freed = [_freed(leaf) for leaf in leaves(caches)]
    layers = map(KeptLayer, places(caches), reported, freed, numbers)
    kept = KeptCache(request_id, counted, sum(freed), tuple(layers))
    caches.clear()
    return kept


def _freed(leaf: Any) -> int:
    """How many bytes are freed with everything that a layer's cache refers to."""
    before = mx.get_active_memory()
    vars(leaf).clear()
    return before - mx.get_active_memory()
