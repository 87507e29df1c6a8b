"""Defects of `BatchGenerator`, of the samplers that requests bring, and of batch caches."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils
from mlx_lm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.mends import mend

# The attribute `mlx_lm.generate` is the function of the same name.
_generate: Any = importlib.import_module("mlx_lm.generate")
_SIZES = ("completion_batch_size", "prefill_batch_size", "prefill_step_size")


@mend("batch-generator-sizes")
def sizes_are_positive(hits: Hits) -> Patch:
    """A batch size or a prefill step below 1 is refused."""

    def check(*_: Any, **options: Any) -> None:
        wrong = [name for name in _SIZES if options.get(name, 1) < 1]
        hits.hit_if(wrong)
        if wrong:
            raise ValueError(f"{wrong[0]} must be at least 1")

    return before(_generate.BatchGenerator, "__init__", check)


@mend("batch-generator-unknown-uid")
def unknown_uids_are_refused(hits: Hits) -> Patch:
    """A uid that was never given out is refused."""

    def check(self: Any, uids: Any, *_: Any, **__: Any) -> None:
        unknown = [uid for uid in uids if not 0 <= uid < self._uid_count]
        hits.hit_if(unknown)
        if unknown:
            raise KeyError(f"there is no request {unknown[0]}")

    return together(
        before(_generate.BatchGenerator, "remove", check),
        before(_generate.BatchGenerator, "extract_cache", check),
    )


@mend("rows-in-prefill-take-no-slot")
def rows_in_prefill_take_slots(hits: Hits) -> Patch:
    """A prompt is let in only while rows in prefill and in decode leave a slot for it."""

    def admit(right: Right, self: Any) -> Any:
        most = self.prefill_batch_size
        free = self.completion_batch_size - len(self._generation_batch)
        hits.hit_if(free < most)
        self.prefill_batch_size = min(most, free)
        try:
            return right(self)
        finally:
            self.prefill_batch_size = most

    return wrap(_generate.BatchGenerator, "_next", admit)


@mend("finished-caches-hold-the-batch")
def finished_caches_are_computed(hits: Hits) -> Patch:
    """The cache that comes with a finishing response is computed, and holds its own row alone."""

    def computed(found: Any, *_: Any) -> Any:
        hits.hit()
        mx.eval([cache.state for cache in found])
        return found

    return after(_generate.GenerationBatch, "extract_cache", computed)


@mend("server-exact-prompt")
def a_kept_prompt_leaves_a_token(hits: Hits) -> Patch:
    """Of a prompt that is kept as a whole the last token is computed again, and more if it must."""

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        cache, rest = right(self, model, tokens)
        if cache is None or rest:
            return cache, rest
        hits.hit()
        if not caches.can_trim_prompt_cache(cache):
            cache, rest = right(self, model, tokens[:-1])
            return cache, [*rest, tokens[-1]]
        caches.trim_prompt_cache(cache, 1)
        return cache, tokens[-1:]

    return wrap(caches.LRUPromptCache, "fetch_nearest_cache", fetch)


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


# Filters check their arguments while they are traced.
_FILTERS = ("apply_top_k", "apply_min_p", "apply_xtc")


@mend("samplers-refused-while-traced")
def refusals_leave_random_numbers_alone(hits: Hits) -> Patch:
    """A filter that refuses its argument leaves the state of random numbers as it was."""

    def apply(right: Right, *args: Any, **options: Any) -> Any:
        state: Any = mx.random.state
        key = state[0]
        try:
            return right(*args, **options)
        except ValueError:
            hits.hit()
            high, low = key.tolist()
            mx.random.seed(high << 32 | low)
            raise

    return together(*(wrap(sample_utils, name, apply) for name in _FILTERS))
