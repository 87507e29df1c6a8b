"""Merge, extend, filter and prepare of batch caches: rows that lose what is theirs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
)

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap, wrap_each
from conformance.power.faults import shared_faults
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    RECURRENT,
    ROPE,
    ROTATING,
    SURVIVORS,
    generate,
    mlx_lm_fault,
)
from conformance.power.faults.shared_faults import (
    RECURRENT_MODULE,
    differs,
    padding_lost_where_lengths_meet,
    ring_as_line,
)

_BATCH = generate.GenerationBatch
_lengths = partial(mlx_lm_fault, fault_class="lengths lost", source="mlx-lm #1072")
_merge = partial(mlx_lm_fault, fault_class="cache merge", source="mlx-lm #1072")


@_lengths(
    "A7.extend-drops-offsets",
    needs=(ROPE, ATTENTION),
    kills=("staggered", "ragged"),
    where="cache:*:offset",
)
def extend_drops_offsets(hits: Hits) -> Patch:
    """Rows that join take the length of the first row in place of their own."""

    def extend(right: Right, self: Any, other: Any) -> None:
        mine = self.offset
        right(self, other)
        joined = mx.broadcast_to(mine[:1], other.offset.shape)
        wrong = mx.concatenate([mine, joined])
        if differs(wrong, self.offset):
            hits.hit()
            self.offset = wrong

    return wrap_each(KV_CACHES, "extend", extend)


@_lengths(
    "A7.composite-not-prepared",
    needs=("cache:CacheList",),
    kills=("ragged", "chunked"),
    where="cache:*",
)
def composite_not_prepared(hits: Hits) -> Patch:
    """Of a composite cache only the first part gets the rows' lengths."""

    def prepare(right: Right, self: Any, **options: Any) -> None:
        hits.hit_if(len(self.caches) > 1)
        with replace(self, "caches", self.caches[:1]):
            right(self, **options)

    return wrap(CacheList, "prepare", prepare)


@_merge(
    "A9.cold-rows-unpadded",
    needs=(ATTENTION,),
    kills=("prompt_cache",),
    where="cache:*:left_padding",
)
def cold_rows_unpadded(hits: Hits) -> Patch:
    """Empty caches merged with full ones: their rows attend the zeros that fill them."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        cold = mx.array([c.keys is None for c in caches])
        if cache.keys is not None and cold.any().item():
            hits.hit()
            cache.left_padding = mx.where(cold, 0, cache.left_padding)
        return cache

    return wrap_each(KV_CACHES, "merge", merge)


@_merge(
    "A9.merge-of-empty-state",
    needs=(RECURRENT,),
    kills=("prompt_cache",),
    where="crash:*cache.py*",
    crash=True,
)
def merge_of_empty_state(hits: Hits) -> Patch:
    """The merge of an empty recurrent state with a full one takes the shape of None."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        states = [state for c in caches for state in c.cache]
        if any(s is None for s in states) and any(s is not None for s in states):
            hits.hit()
            return [state.shape for state in states]
        return right(cls, caches)

    return wrap(ArraysCache, "merge", merge)


@_merge(
    "A9.merge-goes-by-the-first",
    needs=(RECURRENT,),
    kills=("prompt_cache/between",),
    where=f"cache:*ArraysCache:*|{RECURRENT_MODULE}",
    source="mlx-lm #842: the first row's cache decided how all were merged",
)
def merge_goes_by_the_first(hits: Hits) -> Patch:
    """Recurrent states are merged as empty ones if the first of them is."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        if caches[0].empty() and not all(one.empty() for one in caches):
            hits.hit()
            cache.cache = [mx.zeros_like(state) for state in cache.cache]
        return cache

    return wrap(ArraysCache, "merge", merge)


def _unshifted(right: Right, one: Any, other: Any, hits: Hits) -> None:
    """A join after which the rows' padding does not count the columns that were added."""
    rows, theirs = one.left_padding.size, other.left_padding
    right(one, other)
    wrong = mx.concatenate([one.left_padding[:rows], theirs])
    if differs(wrong, one.left_padding):
        hits.hit()
        one.left_padding = wrong


@_merge(
    "A9.extend-by-empty-unpadded",
    needs=(ATTENTION,),
    kills=("cancelled", "staggered"),
    where="cache:*:left_padding",
)
def extend_by_empty_unpadded(hits: Hits) -> Patch:
    """An empty cache that joins a full one counts no padding for the others' columns."""

    def extend(right: Right, self: Any, other: Any) -> None:
        if other.keys is None:
            _unshifted(right, self, other, hits)
        else:
            right(self, other)

    return wrap_each(KV_CACHES, "extend", extend)


@_merge(
    "A9.filter-keeps-the-first-rows",
    needs=(ATTENTION,),
    kills=("early_finish", "cancelled"),
    where="cache:*KVCache:*",
)
def filter_keeps_the_first_rows(hits: Hits) -> Patch:
    """When rows leave, those that stay get the keys and values of the first rows."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        if self.keys is not None and list(keep) != list(range(len(keep))):
            hits.hit()
            order = list(range(self.keys.shape[0]))
            for index, row in enumerate(keep):
                order[row] = index
            self.keys, self.values = self.keys[mx.array(order)], self.values[mx.array(order)]
        right(self, keep)

    return wrap_each(KV_CACHES, "filter", filter_rows)


@mlx_lm_fault(
    "A10.buffers-of-an-empty-batch",
    fault_class="leak",
    source="mlx-lm #1072",
    kills=("batch_of_one",),
)
def buffers_of_an_empty_batch(hits: Hits) -> Patch:
    """After its last row has left, the batch keeps its buffers until the next join."""

    def filter_rows(right: Right, self: Any, keep: list[int]) -> None:
        held = [] if keep else list(self.prompt_cache)
        right(self, keep)
        if held:
            hits.hit()
            self.prompt_cache = held

    def extend(right: Right, self: Any, batch: Any) -> None:
        if not self.uids:
            self.prompt_cache = []
        right(self, batch)

    return together(wrap(_BATCH, "filter", filter_rows), wrap(_BATCH, "extend", extend))


@mlx_lm_fault(
    "B18.joining-row-attends-its-padding",
    fault_class="mask ignored",
    source="mlx-vlm #1030",
    needs=(ATTENTION,),
    kills=("staggered", "chunked"),
    where="cache:*:left_padding",
)
def joining_row_attends_its_padding(hits: Hits) -> Patch:
    """A short row that joins long ones attends the zeros that bring it to their length."""

    def extend(right: Right, self: Any, other: Any) -> None:
        _unshifted(right, self, other, hits)

    return wrap_each(KV_CACHES, "extend", extend)


@mlx_lm_fault(
    "B18.padding-lost-where-lengths-meet",
    fault_class="mask ignored",
    source="a review: rows repeat",
    needs=(FULL,),
    kills=("traffic/lengths_meet",),
    where="cache:*:left_padding",
)
def lengths_meet(hits: Hits) -> Patch:
    """An uneven pair that joins just as many columns as it has is no longer padded."""
    return padding_lost_where_lengths_meet(BatchKVCache, hits)


_rotating = partial(
    mlx_lm_fault, source="mlx-lm #1072", needs=(ROTATING,), where="cache:*RotatingKVCache:*"
)


@_rotating("A8.merge-past-the-size", fault_class="cache merge", kills=("prompt_cache",))
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


@_rotating(
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


@_rotating(
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


@_rotating(
    "F6.ring-sliced-as-a-line",
    fault_class="cache extract",
    source="issue trackers: prompt cache of a rotated window",
    kills=("prompt_cache",),
)
def ring_sliced_as_a_line(hits: Hits) -> Patch:
    """A rotating cache that is full and was overwritten is extracted as if it was not."""
    return ring_as_line(BatchRotatingKVCache, hits)


@_rotating(
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


_recurrent = partial(
    mlx_lm_fault,
    fault_class="recurrent state",
    source="mlx-lm #1072",
    needs=(RECURRENT,),
    kills=("ragged", "chunked"),
    where="cache:*ArraysCache:*",
)


@_recurrent("A1.state-at-padded-end")
def state_at_padded_end(hits: Hits) -> Patch:
    """A recurrent state is taken at the padded end, not at the row's last token.

    The model sees no lengths; the cache's own methods, the mask's among them, see them.
    """

    def get(self: Any) -> Any:
        true = vars(self).get("lengths")
        reader = sys._getframe(1).f_code.co_filename
        if true is None or reader == caches.__file__:
            return true
        hits.hit()
        return None

    def put(self: Any, value: Any) -> None:
        vars(self)["lengths"] = value

    return replace(ArraysCache, "lengths", property(get, put))


@_recurrent(
    "A9.filter-keeps-the-first-states",
    fault_class="cache merge",
    kills=("early_finish", "cancelled"),
)
def filter_keeps_the_first_states(hits: Hits) -> Patch:
    """When rows leave, those that stay get the states of the first rows."""

    def filter_rows(right: Right, self: Any, keep: list[int]) -> None:
        states = list(self.cache)
        right(self, keep)
        for index, (old, new) in enumerate(zip(states, self.cache, strict=True)):
            if old is not None and differs(old[: len(keep)], new):
                hits.hit()
                self.cache[index] = old[: len(keep)]

    return wrap(ArraysCache, "filter", filter_rows)


# In half precision what is lost is within the noise: only the dtypes show it.
@_recurrent(
    "A9.states-in-half-precision",
    fault_class="cache merge",
    source="issue trackers: recurrent state in the precision of the weights",
    kills=("identical", "ragged"),
)
def states_in_half_precision(hits: Hits) -> Patch:
    """A batch keeps its states in half precision, where the single stream keeps float32."""
    return shared_faults.states_in_half_precision(ArraysCache, hits)


@mlx_lm_fault(
    "A10.joining-rows-counted-as-one",
    fault_class="list out of sync",
    source=SURVIVORS,
    needs=(RECURRENT,),
    kills=("samplers/two_into_prefill",),
    crash=True,
)
def joining_rows_counted_as_one(hits: Hits) -> Patch:
    """Rows that join with empty recurrent caches are taken for a single one."""

    def size(self: Any) -> int:
        rows = next((c.shape[0] for c in self.cache if c is not None), 1)
        hits.hit_if(self.empty() and self.left_padding is not None and self.left_padding.size > 1)
        return int(rows)

    return replace(ArraysCache, "batch_size", property(size))
