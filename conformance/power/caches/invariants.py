"""Invariants that a cache must have after each verb."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from conformance.power.caches.finding import Problem, Problems, at_once
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.rows import Feed, Row

PROBE_STAMP = 245


def check(kind: Kind, cache: Any, rows: Sequence[Row], *, dtypes: set[Any]) -> Problems:
    """Check all that the cache reports, and all that the next queries would see.

    Args:
        kind: the kind of the cache.
        cache: not changed, because probes are fed to copies.
        rows: the tokens that the cache must hold.
        dtypes: the dtypes fed to the cache.
    """
    yield from _offsets(kind, cache, rows)
    yield from _sizes(kind, cache, rows)
    found = kind.dtypes(cache)
    if len(dtypes) == 1 and found - dtypes:
        yield Problem("dtype", f"holds {_names(found)}, was fed {_names(dtypes)}")
    for width in (1, 2) if kind.blocks else (1,):
        yield from probe(kind, cache, rows, width)


def probe(kind: Kind, cache: Any, rows: Sequence[Row], width: int) -> Problems:
    """Check what the next ``width`` tokens of each row would see."""
    twin = copy.deepcopy(cache)
    feed = Feed(rows, [row.following(width, PROBE_STAMP) for row in rows])
    seen = False
    for problem in kind.feed(twin, feed):
        seen = True
        yield at_once(problem, width)
    if not seen:
        yield from _offsets(kind, twin, feed.after())


def _offsets(kind: Kind, cache: Any, rows: Sequence[Row]) -> Problems:
    got, wanted = kind.offsets(cache), [len(row) for row in rows]
    if got is not None and got != wanted:
        yield Problem("offset", f"offsets {got}, expected {wanted}")


def _sizes(kind: Kind, cache: Any, rows: Sequence[Row]) -> Problems:
    try:
        got, held = cache.nbytes, kind.held(cache)
        if got != held:
            yield Problem("nbytes", f"nbytes says {got}, {held} are held")
    except (NotImplementedError, AttributeError) as error:
        yield Problem("nbytes", f"nbytes: {type(error).__name__}: {error}")
    some = any(row.tokens for row in rows)
    if not hasattr(cache, "empty"):
        yield Problem("empty", "there is no empty()")
        return
    if some and cache.empty():
        yield Problem("empty", "empty() of a cache with tokens is true")
    if not kind.fed(cache) and not cache.empty():
        yield Problem("empty", "empty() of a cache that was never fed is false")
    if kind.has("trim") and kind.is_whole(rows) and not cache.is_trimmable():
        yield Problem("returned", "is_trimmable() is false, and all tokens are there")
    if kind.checks_size and type(cache).size is not _inherited_size(type(cache)):
        size, least = cache.size(), kind.size_of(rows)
        if size < least:
            yield Problem("size", f"size() says {size}, a row has {least}")


def _inherited_size(cls: type[Any]) -> Any:
    """The base class's size(); a class that inherits it does not know its size."""
    return next((base.__dict__["size"] for base in cls.__mro__[-2:] if "size" in vars(base)), None)


def _names(dtypes: set[Any]) -> str:
    return " and ".join(sorted(str(dtype).rpartition(".")[2] for dtype in dtypes)) or "nothing"
