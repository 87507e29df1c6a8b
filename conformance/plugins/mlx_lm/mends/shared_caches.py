"""Defects of the batch caches, and of the functions that make them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.core.mends import mend


@mend("arrays-cache-extract-view")
def extracted_rows_are_copies(hits: Hits) -> Patch:
    """A row's states that are taken out of the batch are copies, and no views of all rows'."""

    def copied(cache: Any, *_: Any) -> Any:
        hits.hit()
        # mx.contiguous copies nothing, as one row of a batch is contiguous already.
        first = mx.array([0])
        cache.cache = [None if state is None else state[first] for state in cache.cache]
        return cache

    return after(caches.ArraysCache, "extract", copied)


@mend("recurrent-states-are-views", "plamo2-states-are-views")
def kept_states_are_copies(hits: Hits) -> Patch:
    """What a recurrent layer keeps of its inputs is a copy, and no view of all of them."""

    def put(right: Right, self: Any, index: int, state: Any) -> None:
        if state is not None:
            hits.hit()
            state = state[mx.arange(state.shape[0])]
        right(self, index, state)

    return wrap(caches.ArraysCache, "__setitem__", put)


@mend("batch-offset-never-computed")
def offsets_are_computed_with_the_keys(hits: Hits) -> Patch:
    """The rows' offsets are computed at each step, also where no layer reads them."""

    def depending(found: Any, self: Any, *_: Any) -> Any:
        hits.hit()
        self.keys = mx.depends(self.keys, (self.left_padding, self.offset))
        return found

    return after(caches.BatchKVCache, "update_and_fetch", depending)


@mend("arrays-cache-padding-never-computed")
def padding_is_computed_at_each_step(hits: Hits) -> Patch:
    """What is left of the rows' padding is computed at each step, also where no layer reads it."""

    def computed(_: None, self: Any, *__: Any) -> None:
        if self.left_padding is not None:
            hits.hit()
            mx.async_eval(self.left_padding)

    return after(caches.ArraysCache, "advance", computed)


@mend("bounded-cache-keep", single_stream=True)
def bounded_caches_keep_no_first_tokens(hits: Hits) -> Patch:
    """A bounded cache of a single stream slides from the first token on, as a batch's does."""

    def init(right: Right, self: Any, max_size: int, keep: int = 0) -> None:
        hits.hit_if(keep)
        right(self, max_size, 0)

    return wrap(caches.RotatingKVCache, "__init__", init)
