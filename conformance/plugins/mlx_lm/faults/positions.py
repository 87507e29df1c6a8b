"""Positions: the wrong offset for the rotary embedding of a row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.backend.entries import leaves
from conformance.core.faults.base import Hits
from conformance.core.faults.patching import differs, exchange, exchange_in
from conformance.plugins.mlx_lm.faults.tools import (
    ATTENTION,
    KV_CACHES,
    ROPE,
    generate,
    mlx_lm_fault,
    offsets,
)


def _row_0(_: mx.array, offset: mx.array) -> mx.array:
    return mx.broadcast_to(offset[:1], offset.shape)


def _padding_twice(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def finalize(self: Any) -> None:
        before = self.offset
        right(self)
        if differs(before, self.offset):
            hits.hit()
            self.offset = self.offset - (before - self.offset)

    return finalize


def _columns_in_prefill(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def prompt(self: Any, tokens: list[list[int]]) -> None:
        caches = [c for c in leaves(self.prompt_cache) if isinstance(c, KV_CACHES)]
        true = [cache.offset for cache in caches]
        for cache in caches:
            cache.offset = mx.full(cache.offset.shape, cache._idx)
        if any(differs(c.offset, offset) for c, offset in zip(caches, true, strict=True)):
            hits.hit()
        right(self, tokens)
        # Decoding goes by the rows' own positions.
        for cache, offset in zip(caches, true, strict=True):
            cache.offset = offset + mx.array([len(row) for row in tokens])

    return prompt


class _Alias:
    """The offset is advanced in place after its first use: the second sees it moved."""

    def __init__(self) -> None:
        self._seen: mx.array | None = None

    def __call__(self, x: mx.array, offset: mx.array) -> mx.array:
        again = offset is self._seen
        self._seen = offset
        return offset + x.shape[-2] if again else offset


def _moving(hits: Hits) -> AbstractContextManager[None]:
    return offsets(_Alias())(hits)


def _neighbours_in_one_step(x: mx.array, offset: mx.array) -> mx.array:
    """A kernel for one token that takes the rows of a batch for the steps of a sequence."""
    return offset[:1] + mx.arange(offset.size) if x.shape[-2] == 1 else offset


def _scalar(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def rope(x: mx.array, *args: Any, offset: Any, **options: Any) -> Any:
        if isinstance(offset, mx.array):
            if offset.size > 1:
                hits.hit()
            offset = offset.item()
        return right(x, *args, offset=offset, **options)

    return rope


FAULTS = (
    mlx_lm_fault(
        name="B4.offset-of-row-0",
        fault_class="rope offset",
        source="mlx-vlm #1030",
        summary="All rows are rotated by the offset of the first.",
        needs=(ROPE, ATTENTION),
        kills=("ragged", "early_finish"),
        where="module:*RoPE",
        inject=offsets(_row_0),
    ),
    mlx_lm_fault(
        name="B14.offset-as-scalar",
        fault_class="scalar/array dispatch",
        source="mlx-vlm #1030",
        summary="One number is taken out of the offsets, which raises for more than one row.",
        needs=(ROPE, ATTENTION),
        kills=("identical",),
        where="crash:*rope*|crash:*positional_encoding*",
        inject=exchange(mx.fast, "rope", _scalar),
        crash=True,
    ),
    mlx_lm_fault(
        name="B16.offset-moves-between-query-and-key",
        fault_class="offset alias",
        source="mlx-vlm #1030",
        summary="Offsets are advanced in place, so that only the first rotation sees them right.",
        needs=(ROPE, ATTENTION),
        kills=("batch_of_one", "ragged"),
        where="module:*RoPE",
        inject=_moving,
    ),
    mlx_lm_fault(
        name="C1.padding-subtracted-twice",
        fault_class="rope position",
        source="mlx-vlm #1055",
        summary="The padding of a row is subtracted twice from its offset.",
        needs=(ROPE, ATTENTION),
        kills=("ragged", "chunked"),
        where="cache:*KVCache:offset",
        inject=exchange_in(KV_CACHES, "finalize", _padding_twice),
    ),
    mlx_lm_fault(
        name="C4.columns-in-prefill",
        fault_class="rope position",
        source="mlx-vlm #1055",
        summary="Prefill rotates by the column, padding counted; decoding by the row's position.",
        needs=(ROPE, ATTENTION),
        kills=("prompt_cache",),
        where="module:*RoPE|cache:*:offset",
        inject=exchange(generate.PromptProcessingBatch, "prompt", _columns_in_prefill),
    ),
    mlx_lm_fault(
        name="F12.neighbours-at-one-token",
        fault_class="rope kernel",
        source="issue trackers: fast RoPE of a batch at one token",
        summary="At one token a step row b is rotated by the first row's offset plus b.",
        needs=(ROPE, ATTENTION),
        kills=("identical", "ragged"),
        where="module:*RoPE",
        inject=offsets(_neighbours_in_one_step),
    ),
)
