"""Faults of the distance between a row's tokens and its M-RoPE positions, kept for each row."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs
from conformance.plugins.mlx_vlm.faults.patching import (
    after,
    batch_class,
    before,
    fault,
    padding,
    prompt_class,
)

_CLASS = "rope delta"
_NEEDS = ("rope:M-RoPE", "modality:image|modality:video")


def _set(batch: Any, deltas: Any, hits: Hits) -> None:
    if differs(deltas, batch._rope_deltas):
        hits.hit()
    batch._rope_deltas = deltas


def _one_slot(hits: Hits) -> AbstractContextManager[None]:
    def share(batch: Any) -> None:
        if batch._rope_deltas is not None:
            _set(batch, mx.broadcast_to(batch._rope_deltas[-1:], batch._rope_deltas.shape), hits)

    return before(batch_class(), "_step", share)


def _reset_by_text(hits: Hits) -> AbstractContextManager[None]:
    real = batch_class().extend

    def extend(self: Any, other: Any) -> None:
        text = other._rope_deltas is not None and not bool(other._rope_deltas.any().item())
        if text and self._rope_deltas is not None:
            _set(self, mx.zeros_like(self._rope_deltas), hits)
        real(self, other)

    return replaced(batch_class(), "extend", extend)


def _filtered_by_place(hits: Hits) -> AbstractContextManager[None]:
    real = batch_class().filter

    def keep_first(self: Any, keep: list[int]) -> None:
        before_all = self._rope_deltas
        real(self, keep)
        if before_all is not None and keep:
            _set(self, before_all[: len(keep)], hits)

    return replaced(batch_class(), "filter", keep_first)


def _rolled_on_join(hits: Hits) -> AbstractContextManager[None]:
    def roll(self: Any, result: None, _: Any) -> None:
        if self._rope_deltas is not None:
            _set(self, mx.roll(self._rope_deltas, 1, 0), hits)
        return result

    return after(batch_class(), "extend", roll)


def _not_past_the_image(hits: Hits) -> AbstractContextManager[None]:
    def forget(_: Any, batch: Any, __: Any) -> Any:
        if getattr(batch, "_rope_deltas", None) is not None:
            _set(batch, mx.zeros_like(batch._rope_deltas), hits)
        return batch

    return after(prompt_class(), "generate", forget)


def _shifted(batch: Any, by: Any, hits: Hits) -> Any:
    if by.any().item():
        hits.hit()
    return batch._rope_deltas + by[:, None].astype(batch._rope_deltas.dtype)


def _padding_twice(hits: Hits) -> AbstractContextManager[None]:
    return _step_with(lambda batch: -padding(batch.prompt_cache), hits)


def _offset_of_row_0(hits: Hits) -> AbstractContextManager[None]:
    def others(batch: Any) -> Any:
        offset = batch.prompt_cache[0].offset
        return offset[0] - offset

    return _step_with(others, hits)


def _step_with(distance: Any, hits: Hits) -> AbstractContextManager[None]:
    """Decode steps at positions that are off by each row's ``distance``; only they are."""
    real = batch_class()._step

    def step(self: Any) -> Any:
        right = self._rope_deltas
        if right is None or padding(self.prompt_cache) is None:
            return real(self)
        self._rope_deltas = _shifted(self, distance(self), hits)
        try:
            return real(self)
        finally:
            self._rope_deltas = right

    return replaced(batch_class(), "_step", step)


FAULTS = (
    fault(
        "B12.one-rope-delta-slot",
        _CLASS,
        "mlx-vlm #1030",
        "one slot for the whole batch: every row decodes with the last row's delta",
        _one_slot,
        kills="mixed_modality images_together",
        where="module:*RoPE|module:*Rotary*",
        needs=_NEEDS,
    ),
    fault(
        "B3.text-request-resets-positions",
        "stale model state",
        "mlx-vlm #1030",
        "a text-only request that joins resets the deltas of the rows in flight",
        _reset_by_text,
        kills="mixed_modality",
        where="module:*RoPE|module:*Rotary*",
        needs=_NEEDS,
    ),
    fault(
        "B12.rope-deltas-filtered-by-place",
        _CLASS,
        "mlx-vlm #1030",
        "when rows leave, the first deltas are kept instead of those of the rows that stay",
        _filtered_by_place,
        # Elsewhere who stays has its last token already.
        kills="mixed_modality/image_cancelled_in_decode mixed_modality/video_cancelled_in_decode",
        where="module:*RoPE|module:*Rotary*",
        needs=_NEEDS,
    ),
    fault(
        "B12.rope-delta-of-another-row",
        _CLASS,
        "mlx-vlm #1030",
        "a join leaves each row with its neighbour's delta",
        _rolled_on_join,
        kills="mixed_modality",
        where="module:*RoPE|module:*Rotary*",
        needs=_NEEDS,
    ),
    fault(
        "B12.positions-not-advanced-past-image",
        _CLASS,
        "mlx-vlm #1030",
        "decode counts an image as so many tokens, not by its extent",
        _not_past_the_image,
        kills="images_together mixed_modality",
        where="module:*RoPE|module:*Rotary*",
        needs=_NEEDS,
    ),
    fault(
        "C1.padding-twice-from-mrope",
        "rope position",
        "mlx-vlm #1055",
        "at decode the padding is taken off an M-RoPE position that never held it",
        _padding_twice,
        kills="ragged",
        where="module:*RoPE|module:*Rotary*",
        needs=("rope:M-RoPE",),
    ),
    fault(
        "B14.mrope-offset-of-row-0",
        "scalar/array dispatch",
        "mlx-vlm #1030",
        "the positions arange(offset) are read of row 0's offset, for M-RoPE positions of all rows",
        _offset_of_row_0,
        kills="ragged",
        where="module:*RoPE|module:*Rotary*",
        needs=("rope:M-RoPE",),
    ),
)
