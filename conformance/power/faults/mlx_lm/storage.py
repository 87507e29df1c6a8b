"""Storage that grows by steps, goes round, has many rows, or comes from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    TokenBuffer,
    _BaseCache,
)

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.power.faults.mlx_lm.tools import (
    FULL,
    RECURRENT,
    ROTATING,
    SURVIVORS,
    generate,
    mlx_lm_fault,
)
from conformance.power.faults.shared_faults import OUTPUT, differs

_GENERATOR, _BATCH = generate.BatchGenerator, generate.GenerationBatch
_storage = partial(mlx_lm_fault, fault_class="storage", where="cache:*")
_grown = partial(_storage, source="no report: caches and token buffers grow by 256")
_rows = partial(
    _storage,
    fault_class="list misalignment",
    source="no report: kernels change at 6 rows and more",
    where=OUTPUT,
)
# Rows of a batch that counts as large.
_MANY = 6
# More steps than a window has tokens, by which rows decode without a join in short runs.
_STEPS = 5


@_grown(
    "G3.window-moves-as-it-grows",
    source="a review: nothing is long",
    kills=("marathon/many", "marathon/crowd"),
    needs=("family:*-window-*",),
)
def window_moves_as_it_grows(hits: Hits) -> Patch:
    """When the storage of a large window grows again, its keys move by one column."""

    def update(right: Right, self: Any, *given: Any) -> Any:
        before = 0 if self.keys is None else self.keys.shape[2]
        found = right(self, *given)
        if not self.step <= before < self.keys.shape[2]:
            return found
        hits.hit()
        self.keys = mx.roll(self.keys, 1, 2)
        return self.keys_and_values()

    return wrap(BatchRotatingKVCache, "_update_in_place", update)


@_grown("G3.two-steps-for-a-call", kills=("ragged/long",), needs=(FULL,))
def two_steps_for_a_call(hits: Hits) -> Patch:
    """Of a call's keys only as many are stored as fit into two steps."""

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        room = 2 * self.step
        if keys.shape[2] > room:
            hits.hit()
            kept = mx.arange(keys.shape[2])[:, None] < room
            keys = mx.where(kept, keys, 0)
        return right(self, keys, values)

    return wrap(BatchKVCache, "update_and_fetch", update)


@_grown("G3.whole-step-written-over-the-one-before", kills=("chunked/long",), needs=(FULL,))
def whole_step_written_over_the_one_before(hits: Hits) -> Patch:
    """A call that fills a whole step of storage overwrites the end of what was there."""

    def stored(made: Any, self: Any, keys: mx.array, _: mx.array) -> Any:
        before = self._idx - keys.shape[2]
        if before and keys.shape[2] == self.step:
            hits.hit()
            self.keys[..., before - 1, :] = keys[..., 0, :]
            return self.keys_and_values()
        return made

    return after(BatchKVCache, "update_and_fetch", stored)


@_grown(
    "G3.history-lost-when-it-grows",
    fault_class="samplers",
    kills=("samplers/history_grows",),
    where=OUTPUT,
)
def history_lost_when_it_grows(hits: Hits) -> Patch:
    """A buffer of tokens that needs a second step forgets those of the first."""

    def update(right: Right, self: Any, tokens: mx.array) -> Any:
        grows = 0 < self._size == self._buffer.size
        if grows and self._size % self.step == 0:
            hits.hit()
            self._buffer = mx.zeros_like(self._buffer)
        return right(self, tokens)

    return wrap(TokenBuffer, "update_and_fetch", update)


@_rows("G4.limits-past-the-sixth-row", kills=("early_finish/of_eight",))
def limits_past_the_sixth_row(hits: Hits) -> Patch:
    """When a row leaves a large batch, the limits of the rows past the sixth stay in place."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        wrong = self.max_tokens[_MANY : len(keep)]
        right(self, keep)
        hits.hit_if(wrong != self.max_tokens[_MANY:])
        self.max_tokens[_MANY:] = wrong

    return wrap(_BATCH, "filter", filter_rows)


@_rows(
    "G4.removed-one-after-another",
    fault_class="cancellation",
    source="no report: remove() takes several requests, and rows move up",
    kills=("cancelled/decode_of_eight",),
)
def removed_one_after_another(hits: Hits) -> Patch:
    """Of several rows that are removed at once, later ones are looked for where they were before.

    Each that is taken out moves the others up by one.
    """

    def remove(right: Right, self: Any, uids: Sequence[int], *args: Any, **options: Any) -> Any:
        decoding = list(self._generation_batch.uids)
        asked = [decoding.index(uid) for uid in uids if uid in decoding]
        if len(decoding) > _MANY and len(asked) > 1:
            left, wrong = list(decoding), []
            for place in sorted(asked):
                wrong.append(left.pop(min(place, len(left) - 1)))
            hits.hit_if(differs(sorted(wrong), sorted(decoding[at] for at in asked)))
            uids = [*wrong, *(uid for uid in uids if uid not in decoding)]
        return right(self, uids, *args, **options)

    return wrap(_GENERATOR, "remove", remove)


@_storage(
    "G5.joined-after-a-whole-turn",
    source="no report: a rotating cache is put in order before a join",
    kills=("window/turns",),
    needs=(ROTATING,),
)
def joined_after_a_whole_turn(hits: Hits) -> Patch:
    """At a join, a key of storage that went round a whole time while rows decoded is lost."""

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        self._turned = getattr(self, "_turned", 0) + 1
        return right(self, keys, values)

    def extend(right: Right, self: Any, other: Any) -> None:
        if getattr(self, "_turned", 0) > self.max_size + _STEPS:
            hits.hit()
            self._temporal_order()
            self.keys[..., self.max_size // 2, :] = 0
        right(self, other)

    return together(
        wrap(BatchRotatingKVCache, "_update_in_place", update),
        wrap(BatchRotatingKVCache, "extend", extend),
    )


_saved = partial(mlx_lm_fault, fault_class="cache load", kills=("prompt_cache/saved",))


def _loaded(kind: type[Any], change: Callable[[Any], None]) -> Patch:
    """``change(cache)`` after a cache of that class was made of its saved state."""

    def then(cache: Any, *_: Any, **__: Any) -> Any:
        if isinstance(cache, kind):
            change(cache)
        return cache

    return after(_BaseCache, "from_state", then)


@_saved(
    "D9.loaded-without-its-length",
    needs=(FULL,),
    where="cache:*KVCache:*",
    source="mlx-lm 0.30.7, models/cache.py: the length is not in the state, but set beside it",
)
def loaded_without_its_length(hits: Hits) -> Patch:
    """A loaded cache has keys, and counts none of them."""

    def change(cache: Any) -> None:
        hits.hit()
        cache.offset = 0

    return _loaded(KVCache, change)


@_saved(
    "D9.loaded-as-long-as-held",
    needs=(ROTATING,),
    where="cache:*RotatingKVCache:*",
    source="issue trackers: prompt cache of a rotated window",
)
def loaded_as_long_as_held(hits: Hits) -> Patch:
    """A loaded window counts the tokens that it holds, not those that it saw."""

    def change(cache: Any) -> None:
        if cache.keys is not None and cache.offset != cache.keys.shape[-2]:
            hits.hit()
            cache.offset = cache.keys.shape[-2]

    return _loaded(RotatingKVCache, change)


@_saved(
    "D9.loaded-list-of-none",
    needs=("cache:CacheList",),
    where="crash:*cache.py*",
    source="mlx-lm 0.30.7: CacheList.from_state sets a state on caches that are not there",
    crash=True,
)
def loaded_list_of_none(hits: Hits) -> Patch:
    """A loaded list of caches has no caches."""

    def change(cache: Any) -> None:
        hits.hit()
        del cache.caches

    return _loaded(CacheList, change)


@_saved(
    "D9.loaded-state-is-new",
    needs=(RECURRENT,),
    where="cache:*ArraysCache:*",
    source="mlx-lm 0.30.4, models/cache.py:564: a loaded cache lacks what its state leaves out",
)
def loaded_state_is_new(hits: Hits) -> Patch:
    """A recurrent state that was loaded is taken for that of a new prompt."""

    def change(cache: Any) -> None:
        hits.hit()
        cache.cache = [None for _ in cache.cache]

    return _loaded(ArraysCache, change)


@_storage(
    "A8.free-storage-kept",
    source=SURVIVORS,
    needs=(ROTATING,),
    kills=("prompt_cache/brief",),
    where="cache:*RotatingKVCache:*",
)
def free_storage_kept(hits: Hits) -> Patch:
    """A row that is taken out of a rotating cache that is not full brings free columns along."""

    def extract(right: Right, self: Any, idx: int) -> Any:
        free = not self.rotated and self.keys.shape[2] > self._idx
        hits.hit_if(free)
        with replace(self, "_idx", self.keys.shape[2] if free else self._idx):
            return right(self, idx)

    return wrap(BatchRotatingKVCache, "extract", extract)
