"""Work and memory that the right answer does not need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, KVCache, TokenBuffer

from conformance.backend.entries import leaves
from conformance.core.faults.base import Fault, Hits
from conformance.core.faults.patching import Injection, all_of, exchange
from conformance.plugins.mlx_lm.faults.tools import ATTENTION, FULL, ROPE, generate, mlx_lm_fault

_GENERATOR, _BATCH = generate.BatchGenerator, generate.GenerationBatch
_ALL = 1 << 30


def _padded_to_the_longest(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **options: Any) -> None:
        right(self, *args, **options)
        # The batch of prompts still works in pieces, but all rows go through all of them.
        hits.hit()
        self.prefill_step_size = _ALL

    return init


class _PrefillFirst:
    """No row decodes while a prompt waits that has a slot."""

    def __init__(self) -> None:
        self._prefilling = False

    def at_next(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def step(generator: Any) -> Any:
            done: list[Any] = []
            while self._waits(generator):
                if len(generator._generation_batch):
                    hits.hit()
                self._prefilling = True
                done += right(generator)[0]
                self._prefilling = False
            prompts, tokens = right(generator)
            return done + prompts, tokens

        return step

    def at_decode(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        return lambda batch: [] if self._prefilling else right(batch)

    @staticmethod
    def _waits(generator: Any) -> bool:
        room = generator.completion_batch_size > len(generator._generation_batch)
        work = generator._currently_processing or generator._unprocessed_sequences
        return bool(work) and room


def _prefill_first(hits: Hits) -> Any:
    order = _PrefillFirst()
    return all_of(
        exchange(_GENERATOR, "_next", order.at_next), exchange(_BATCH, "next", order.at_decode)
    )(hits)


def _read_at_each_rotation(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def rope(x: mx.array, *args: Any, offset: Any, **options: Any) -> Any:
        if isinstance(offset, mx.array) and x.shape[-2] == 1:
            hits.hit()
            offset = mx.array(offset.tolist())
        return right(x, *args, offset=offset, **options)

    return rope


def _chained(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def step(self: Any) -> Any:
        for cache in leaves(self.prompt_cache):
            hits.hit()
            # Nobody ever evaluates it, so that each step's sum holds on to the one before.
            cache.chain = getattr(cache, "chain", mx.zeros(len(self.uids))[:1]) + 1
        return right(self)

    return step


def _history_anew(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def update(self: Any, tokens: mx.array) -> mx.array:
        hits.hit()
        history = [*self.tokens.tolist()]
        self._buffer = mx.array(history, dtype=mx.int32)
        return mx.array(right(self, tokens).tolist())

    return update


def _views(_: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def extract(self: Any, idx: int) -> KVCache:
        hits.hit()
        cache, pad = KVCache(), self.left_padding.tolist()[idx]
        cache.keys = self.keys[idx : idx + 1, :, pad : self._idx]
        cache.values = self.values[idx : idx + 1, :, pad : self._idx]
        cache.offset = cache.keys.shape[2]
        return cache

    return extract


def _leak(
    name: str,
    source: str,
    summary: str,
    schedule: str,
    inject: Injection,
    *,
    needs: tuple[str, ...] = (),
) -> Fault:
    return mlx_lm_fault(
        name=name,
        fault_class="leak",
        source=source,
        summary=summary,
        needs=needs,
        kills=(f"held/{schedule}",),
        inject=inject,
    )


def _cost(
    name: str,
    source: str,
    summary: str,
    scenario: str,
    inject: Injection,
    *,
    needs: tuple[str, ...] = (),
) -> Fault:
    return mlx_lm_fault(
        name=name,
        fault_class="cost",
        source=source,
        summary=summary,
        needs=needs,
        kills=(scenario,),
        inject=inject,
        priced=True,
    )


FAULTS = (
    _cost(
        "A4.padded-to-the-longest",
        "mlx-lm #1072",
        "Each prompt is computed as far as the longest beside it reaches.",
        "chunked",
        exchange(_GENERATOR, "__init__", _padded_to_the_longest),
    ),
    _leak(
        "A10.slices-hold-the-batch",
        "mlx-lm #1072",
        "A cache that is taken out is a view, which keeps the whole batch's buffer alive.",
        "computed",
        exchange(BatchKVCache, "extract", _views),
        needs=(FULL,),
    ),
    _cost(
        "B19.prefill-before-decode",
        "mlx-vlm #1030",
        "All prompts are prefilled before any row decodes on.",
        "staggered",
        _prefill_first,
    ),
    _cost(
        "C5.offsets-read-at-each-step",
        "mlx-vlm #1055",
        "The host reads the offsets in each layer of each decode step.",
        "ragged",
        exchange(mx.fast, "rope", _read_at_each_rotation),
        needs=(ROPE, ATTENTION),
    ),
    _leak(
        "D5.chain-of-sums",
        "a Swift engine's fork",
        "A number that is counted up in each step is never evaluated: the graph grows.",
        "decoding",
        exchange(_BATCH, "_step", _chained),
    ),
    _cost(
        "D7.history-made-anew",
        "a Swift engine's fork",
        "The tokens that penalties count are read and copied whole in each step.",
        "samplers",
        exchange(TokenBuffer, "update_and_fetch", _history_anew),
    ),
)
