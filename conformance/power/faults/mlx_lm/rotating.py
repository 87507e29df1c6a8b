"""Rotating caches: a ring that is taken for a line, or for longer than it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache

from conformance.backend.shared_faults import differs, ring_as_line
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.power.faults.mlx_lm.tools import ROTATING, mlx_lm_fault

_fault = partial(
    mlx_lm_fault, source="mlx-lm #1072", needs=(ROTATING,), where="cache:*RotatingKVCache:*"
)


@_fault("A8.merge-past-the-size", fault_class="cache merge", kills=("prompt_cache",))
def merge_past_the_size(hits: Hits) -> Patch:
    """Merged rotating caches are sized by the tokens seen, past what they hold."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        beyond = max(c.offset for c in caches) - cache.max_size
        if cache.keys is None or beyond <= 0:
            return cache
        hits.hit()
        fill = [(0, 0), (0, 0), (0, beyond), (0, 0)]
        cache.keys, cache.values = mx.pad(cache.keys, fill), mx.pad(cache.values, fill)
        cache._idx += beyond
        cache._offset += beyond
        return cache

    return wrap(BatchRotatingKVCache, "merge", merge)


@_fault(
    "A7.rolled-without-its-padding",
    fault_class="lengths lost",
    kills=("ragged", "chunked"),
    where="cache:*RotatingKVCache:left_padding",
)
def rolled_without_its_padding(hits: Hits) -> Patch:
    """A rotating cache moves its rows to the right end and does not note their padding."""

    def finalize(right: Right, self: Any) -> None:
        known = mx.array(self.left_padding)  # it is changed in place
        right(self)
        if differs(known, self.left_padding):
            hits.hit()
            self.left_padding = known

    return wrap(BatchRotatingKVCache, "finalize", finalize)


@_fault(
    "C7.arguments-swapped",
    fault_class="dispatch",
    source="mlx-vlm #1055",
    kills=("batch_of_one",),
    where="crash:*cache.py*",
    crash=True,
)
def arguments_swapped(hits: Hits) -> Patch:
    """A rotating batch cache is made with size and padding in the other order."""

    def init(right: Right, self: Any, max_size: Any, left_padding: Any) -> None:
        hits.hit()
        right(self, left_padding, max_size)

    return wrap(BatchRotatingKVCache, "__init__", init)


@_fault(
    "F6.ring-sliced-as-a-line",
    fault_class="cache extract",
    source="issue trackers: prompt cache of a rotated window",
    kills=("prompt_cache",),
)
def ring_sliced_as_a_line(hits: Hits) -> Patch:
    """A rotating cache that is full and was overwritten is extracted as if it was not."""
    return ring_as_line(BatchRotatingKVCache, hits)


@_fault(
    "G5.piece-of-a-whole-window",
    fault_class="chunked prefill",
    source="no report: a rotating cache holds back one key less than a window for the next piece",
    kills=("window/even",),
)
def piece_of_a_whole_window(hits: Hits) -> Patch:
    """A piece exactly as long as the window takes the place of all that was before it."""

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        found = right(self, keys, values)
        before = self.keys.shape[2] - keys.shape[2]
        if keys.shape[2] == self.max_size and before > 0:
            hits.hit()
            self.keys[..., :before, :], self.values[..., :before, :] = 0, 0
        return found if before <= 0 else (self.keys, self.values)

    return wrap(BatchRotatingKVCache, "_update_concat", update)
