"""Faults of the distance between a row's tokens and its M-RoPE positions, kept for each row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import ROTATION, differs, kept_by_place
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, wrap
from conformance.plugins.mlx_vlm.library_parts import batch_class, padding, prompt_class
from conformance.power.faults.mlx_vlm.tools import MROPE, SHOWN, mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="rope delta",
    source="mlx-vlm #1030",
    kills=("mixed_modality",),
    where=ROTATION,
    needs=(*MROPE, SHOWN),
)


def _change(batch: Any, change: Callable[[mx.array], mx.array], hits: Hits) -> None:
    """The deltas of a batch that has some are ``change(deltas)``."""
    right = getattr(batch, "_rope_deltas", None)
    if right is not None:
        batch._rope_deltas = change(right)
        hits.hit_if(differs(batch._rope_deltas, right))


@_fault("B12.one-rope-delta-slot", kills=("mixed_modality", "images_together"))
def one_rope_delta_slot(hits: Hits) -> Patch:
    """One slot for the whole batch: every row decodes with the last row's delta."""

    def share(batch: Any) -> None:
        _change(batch, lambda deltas: mx.broadcast_to(deltas[-1:], deltas.shape), hits)

    return before(batch_class(), "_step", share)


@_fault("B3.text-request-resets-positions", fault_class="stale model state")
def text_request_resets_positions(hits: Hits) -> Patch:
    """A text-only request that joins resets the deltas of the rows in flight."""

    def reset(batch: Any, other: Any) -> None:
        if other._rope_deltas is not None and not other._rope_deltas.any().item():
            _change(batch, mx.zeros_like, hits)

    return before(batch_class(), "extend", reset)


# Elsewhere who stays has its last token already.
@_fault(
    "B12.rope-deltas-filtered-by-place",
    kills=(
        "mixed_modality/image_cancelled_in_decode",
        "mixed_modality/video_cancelled_in_decode",
    ),
)
def rope_deltas_filtered_by_place(hits: Hits) -> Patch:
    """When rows leave, the first deltas are kept instead of those of the rows that stay."""
    return kept_by_place(batch_class(), "_rope_deltas", hits)


@_fault("B12.rope-delta-of-another-row")
def rope_delta_of_another_row(hits: Hits) -> Patch:
    """A join leaves each row with its neighbour's delta."""

    def roll(_: None, batch: Any, __: Any) -> None:
        _change(batch, lambda deltas: mx.roll(deltas, 1, 0), hits)

    return after(batch_class(), "extend", roll)


@_fault("B12.positions-not-advanced-past-image", kills=("images_together", "mixed_modality"))
def positions_not_advanced_past_image(hits: Hits) -> Patch:
    """Decode counts an image as so many tokens, not by its extent."""

    def forget(batch: Any, *_: Any, **__: Any) -> Any:
        _change(batch, mx.zeros_like, hits)
        return batch

    return after(prompt_class(), "generate", forget)


def _step_off_by(distance: Callable[[Any], mx.array], hits: Hits) -> Patch:
    """Decode steps at positions that are off by each row's ``distance``; only they are."""

    def step(right: Right, self: Any) -> Any:
        deltas = self._rope_deltas
        if deltas is None or padding(self.prompt_cache) is None:
            return right(self)
        by = distance(self)
        hits.hit_if(by.any().item())
        with replace(self, "_rope_deltas", deltas + by[:, None].astype(deltas.dtype)):
            return right(self)

    return wrap(batch_class(), "_step", step)


@_fault(
    "C1.padding-twice-from-mrope",
    fault_class="rope position",
    source="mlx-vlm #1055",
    kills=("ragged",),
    needs=MROPE,
)
def padding_twice_from_mrope(hits: Hits) -> Patch:
    """At decode the padding is taken off an M-RoPE position that never held it."""
    return _step_off_by(lambda batch: -padding(batch.prompt_cache), hits)


@_fault(
    "B14.mrope-offset-of-row-0",
    fault_class="scalar/array dispatch",
    kills=("ragged",),
    needs=MROPE,
)
def mrope_offset_of_row_0(hits: Hits) -> Patch:
    """M-RoPE positions of all rows begin at row 0's offset, as `arange(offset)` of it would."""

    def others(batch: Any) -> mx.array:
        offset: mx.array = batch.prompt_cache[0].offset
        return offset[0] - offset

    return _step_off_by(others, hits)
