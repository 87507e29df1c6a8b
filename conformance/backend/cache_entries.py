"""A model's caches one by one, also within lists of caches, and their memory beyond their count."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from conformance.core.trace import KeptCache, KeptLayer


def arrays(value: Any) -> Iterator[mx.array]:
    """All arrays of caches, of lists of caches, and of their attributes."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays(item)
    elif hasattr(type(value), "state"):
        yield from arrays(list(vars(value).values()))


def leaves(entries: Sequence[Any]) -> Iterator[Any]:
    """All caches, including caches within lists of caches."""
    for entry in entries:
        inner = getattr(entry, "caches", None)
        if inner is not None:
            yield from leaves(inner)
        elif entry is not None:
            yield entry


def places(entries: Sequence[Any]) -> Iterator[str]:
    """The place of each of ``leaves``: ``3`` or, within a list of caches, ``3.0``."""
    for index, entry in enumerate(entries):
        inner = getattr(entry, "caches", None)
        if inner is not None:
            yield from (f"{index}.{rest}" for rest in places(inner))
        elif entry is not None:
            yield str(index)


def floating(entry: Any) -> tuple[str, ...]:
    """The dtypes of a cache's floating arrays, sorted, except empty and one-axis arrays."""
    found = (array for array in arrays(entry) if array.ndim > 1 and array.size)
    kinds = {array.dtype for array in found if mx.issubdtype(array.dtype, mx.floating)}
    return tuple(sorted(str(kind).rpartition(".")[2] for kind in kinds))


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
