"""Work and memory that the right answer does not need."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    KVCache,
    LRUPromptCache,
    TokenBuffer,
    can_trim_prompt_cache,
    trim_prompt_cache,
)

from conformance.backend.cache_entries import leaves
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.power.faults.mlx_lm.tools import ATTENTION, FULL, ROPE, generate, mlx_lm_fault

_GENERATOR, _BATCH = generate.BatchGenerator, generate.GenerationBatch
_ALL = 1 << 30
# Columns before those that a recurrent layer keeps.
_COLUMNS = 256
_cost = partial(mlx_lm_fault, fault_class="cost", priced=True)
# What a contract counts, and no figure of other schedules shows.
_counted = partial(mlx_lm_fault, fault_class="cost")
_leak = partial(mlx_lm_fault, fault_class="leak")


@_cost("A4.padded-to-the-longest", source="mlx-lm #1072", kills=("chunked", "cost_positions"))
def padded_to_the_longest(hits: Hits) -> Patch:
    """Each prompt is computed as far as the longest beside it reaches."""

    def in_one_piece(_: None, self: Any, *__: Any, **___: Any) -> None:
        # The batch of prompts still works in pieces, but all rows go through all of them.
        hits.hit()
        self.prefill_step_size = _ALL

    return after(_GENERATOR, "__init__", in_one_piece)


@_leak("A10.slices-hold-the-batch", source="mlx-lm #1072", kills=("held/computed",), needs=(FULL,))
def slices_hold_the_batch(hits: Hits) -> Patch:
    """A cache that is taken out is a view, which keeps the whole batch's buffer alive."""

    def extract(_: Right, self: Any, idx: int) -> KVCache:
        hits.hit()
        cache, pad = KVCache(), self.left_padding.tolist()[idx]
        cache.keys = self.keys[idx : idx + 1, :, pad : self._idx]
        cache.values = self.values[idx : idx + 1, :, pad : self._idx]
        cache.offset = cache.keys.shape[2]
        return cache

    return wrap(BatchKVCache, "extract", extract)


@_leak(
    "A10.state-holds-its-piece",
    source="mlx-lm #1077",
    kills=("kept/piece",),
    # Others are right in this alone: they keep copies of their convolutions' last inputs.
    needs=("family:qwen3_next|family:qwen3_5*|family:kimi_linear",),
)
def state_holds_its_piece(hits: Hits) -> Patch:
    """What a convolution keeps of its inputs is a view, which keeps a whole piece's alive."""

    def put(right: Right, self: Any, index: int, state: mx.array) -> None:
        hits.hit()
        before = mx.zeros((state.shape[0], _COLUMNS, *state.shape[2:]), state.dtype)
        right(self, index, mx.concatenate([before, state], axis=1)[:, _COLUMNS:])

    return wrap(ArraysCache, "__setitem__", put)


@_cost("B19.prefill-before-decode", source="mlx-vlm #1030", kills=("staggered", "cost_late"))
def prefill_before_decode(hits: Hits) -> Patch:
    """All prompts that have a slot are prefilled before any row decodes on."""
    prefilling = False

    def waits(generator: Any) -> bool:
        room = generator.completion_batch_size > len(generator._generation_batch)
        work = generator._currently_processing or generator._unprocessed_sequences
        return bool(work) and room

    def step(right: Right, generator: Any) -> Any:
        nonlocal prefilling
        done: list[Any] = []
        while waits(generator):
            hits.hit_if(len(generator._generation_batch))
            prefilling, steps = True, generator._counters.generation_steps
            done += right(generator)[0]
            prefilling, generator._counters.generation_steps = False, steps
        prompts, tokens = right(generator)
        return done + prompts, tokens

    def decode(right: Right, batch: Any) -> Any:
        return [] if prefilling else right(batch)

    return together(wrap(_GENERATOR, "_next", step), wrap(_BATCH, "next", decode))


@_counted("B19.decode-waits-for-prefill", source="mlx-lm #1072", kills=("cost_late",))
def decode_waits_for_prefill(hits: Hits) -> Patch:
    """Rows that decode get no token in steps that compute a piece of a prompt."""
    prefilling = False

    def step(right: Right, generator: Any) -> Any:
        nonlocal prefilling
        prefilling = bool(generator._currently_processing)
        return right(generator)

    def decode(right: Right, batch: Any) -> Any:
        if not prefilling or not len(batch):
            return right(batch)
        hits.hit()
        return []

    return together(wrap(_GENERATOR, "_next", step), wrap(_BATCH, "next", decode))


@_cost(
    "C5.offsets-read-at-each-step",
    source="mlx-vlm #1055",
    kills=("ragged", "cost_reads"),
    needs=(ROPE, ATTENTION),
)
def offsets_read_at_each_step(hits: Hits) -> Patch:
    """The host reads the offsets in each layer of each decode step."""

    def rope(right: Right, x: mx.array, *args: Any, offset: Any, **options: Any) -> Any:
        if isinstance(offset, mx.array) and x.shape[-2] == 1:
            hits.hit()
            offset = mx.array(offset.tolist())
        return right(x, *args, offset=offset, **options)

    return wrap(mx.fast, "rope", rope)


@_counted("A4.pieces-half-as-long", source="no report known", kills=("cost_late",))
def pieces_half_as_long(hits: Hits) -> Patch:
    """Prompts are cut into twice as many pieces as was asked for."""

    def halved(_: None, self: Any, *__: Any, **___: Any) -> None:
        hits.hit()
        self.prefill_step_size = max(self.prefill_step_size // 2, 1)

    return after(_GENERATOR, "__init__", halved)


@_counted(
    "F5.half-of-a-kept-prefix", source="no report known", kills=("cost_prefix",), needs=(FULL,)
)
def half_of_a_kept_prefix(hits: Hits) -> Patch:
    """Of the kept tokens that a prompt begins with half are computed again."""

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        cache, rest = right(self, model, tokens)
        count = len(tokens) - len(rest)
        if cache is None or count < 2 or not can_trim_prompt_cache(cache):
            return cache, rest
        hits.hit()
        trim_prompt_cache(cache, count - count // 2)
        return cache, tokens[count // 2 :]

    return wrap(LRUPromptCache, "fetch_nearest_cache", fetch)


@_leak("D5.chain-of-sums", source="a Swift engine's fork", kills=("held/decoding",))
def chain_of_sums(hits: Hits) -> Patch:
    """A number that is counted up in each step is never evaluated: the graph grows."""

    def count(batch: Any) -> None:
        for cache in leaves(batch.prompt_cache):
            hits.hit()
            # Nobody ever evaluates it, so that each step's sum holds on to the one before.
            cache.chain = getattr(cache, "chain", mx.zeros(len(batch.uids))[:1]) + 1

    return before(_BATCH, "_step", count)


@_leak(
    "D5.outputs-of-all-steps-kept",
    source="issue trackers: memory grows with every token",
    kills=("held/lasting",),
)
def outputs_of_all_steps_kept(hits: Hits) -> Patch:
    """A list keeps what each step gave, and nobody empties it."""
    kept: list[mx.array] = []

    def keep(responses: Any, *_: Any) -> Any:
        for response in responses:
            hits.hit()
            kept.append(response.logprobs)
        return responses

    return after(_BATCH, "next", keep)


@_cost("D7.history-made-anew", source="a Swift engine's fork", kills=("samplers",))
def history_made_anew(hits: Hits) -> Patch:
    """The tokens that penalties count are read and copied whole in each step."""

    def update(right: Right, self: Any, tokens: mx.array) -> mx.array:
        hits.hit()
        history = [*self.tokens.tolist()]
        self._buffer = mx.array(history, dtype=mx.int32)
        return mx.array(right(self, tokens).tolist())

    return wrap(TokenBuffer, "update_and_fetch", update)
