"""Positions: offsets in prefill and at decode, M-RoPE's deltas, a chunk's end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.plugins.mlx_vlm.library_parts import batch_class, padding, prompt_class
from conformance.power.faults.mlx_vlm.tools import MROPE, PADDED, SHOWN, mlx_vlm_fault
from conformance.power.faults.shared_faults import (
    ROTATION,
    differs,
    kept_by_place,
    of_row_0,
    rotated_at,
)

_position = partial(
    mlx_vlm_fault,
    fault_class="rope position",
    source="mlx-vlm #1055",
    kills=("ragged",),
    where=ROTATION,
    needs=("rope:RoPE*", *PADDED),
)


# In one batch from the start that shifts each row as a whole, which no attention sees.
@_position(
    "B14.rope-offset-of-row-0",
    fault_class="scalar/array dispatch",
    source="mlx-vlm #1030",
    kills=("staggered",),
)
def rope_offset_of_row_0(hits: Hits) -> Patch:
    """All rows are rotated by row 0's offset, as `offset.item()` of it would."""
    return rotated_at(lambda _, offset: of_row_0(offset), hits)


@_position("F12.rope-wrong-at-one-token", fault_class="rope kernel", source="issue trackers")
def rope_wrong_at_one_token(hits: Hits) -> Patch:
    """The fast kernel rotates a single token of each row by row 0's offset."""
    return rotated_at(lambda x, offset: of_row_0(offset) if x.shape[-2] == 1 else offset, hits)


def _off_by_padding(owner: Any, methods: tuple[str, ...], sign: int, hits: Hits) -> Patch:
    """While one of the methods runs, positions are off by ``sign`` times the row's padding."""
    pads: mx.array | None = None

    def method(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        nonlocal pads
        pads = padding(self.prompt_cache)
        try:
            return right(self, *args, **options)
        finally:
            pads = None

    def change(_: mx.array, offset: mx.array) -> mx.array:
        if pads is None or pads.shape != offset.shape or offset.size == 1:
            return offset
        return offset + sign * pads

    return together(*(wrap(owner, name, method) for name in methods), rotated_at(change, hits))


@_position("C1.padding-twice")
def padding_twice(hits: Hits) -> Patch:
    """At decode the padding is taken off an offset that never held it."""
    return _off_by_padding(batch_class(), ("_step",), -1, hits)


@_position("C4.columns-at-prefill")
def columns_at_prefill(hits: Hits) -> Patch:
    """Prefill counts padding in its positions, decode does not."""
    return _off_by_padding(prompt_class(), ("prompt_step", "generate"), 1, hits)


@_position("C4.mrope-columns-at-prefill", needs=MROPE)
def mrope_columns_at_prefill(hits: Hits) -> Patch:
    """M-RoPE positions of the prompt count padding, those of decode do not.

    The deltas that decode uses are right.
    """

    def shift(_: None, self: Any, *__: Any, **___: Any) -> None:
        ids = self._prompt_kwargs.get("position_ids")
        pads = mx.array(self._left_padding_per_row)
        if ids is not None and pads.any().item():
            hits.hit()
            self._prompt_kwargs["position_ids"] = ids + pads[:, None].astype(ids.dtype)

    return after(prompt_class(), "__init__", shift)


@_position(
    "B11.first-chunk-without-the-image",
    source="mlx-vlm #1030",
    kills=("images_together", "mixed_modality", "media_in_pieces"),
    needs=(*MROPE, SHOWN),
)
def first_chunk_without_the_image(hits: Hits) -> Patch:
    """The first chunk counts its positions from the slice, without the image's extent."""

    def count(given: Any, self: Any, n: int | None = None) -> Any:
        kwargs = dict(given)
        ids = kwargs.get("position_ids")
        if ids is not None and n is not None and not self._processed_prompt_columns:
            pads = mx.array(self._left_padding_per_row)[:, None]
            counted = mx.broadcast_to(mx.arange(n)[None] - pads, ids.shape).astype(ids.dtype)
            counted = mx.where(mx.arange(n)[None] < pads, ids, counted)
            hits.hit_if(differs(counted, ids))
            kwargs["position_ids"] = counted
        return kwargs

    return after(prompt_class(), "_prompt_kwargs_for_step", count)


def _boundary(start: Callable[[int], int], hits: Hits) -> Patch:
    """The chunk after ``n`` tokens begins at token ``start(n)``."""

    def prompt_step(right: Right, self: Any) -> Any:
        ids, embeds, kwargs = self._input_ids, self._inputs_embeds, dict(self._prompt_kwargs)
        done = right(self)
        # The last token is a piece of its own in any case: that is no chunk's boundary.
        if done > 1 and self._input_ids.shape[1] > 1:
            hits.hit()
            rest = slice(start(done), None)
            self._input_ids, self._inputs_embeds = ids[:, rest], embeds[:, rest]
            for name in self._prompt_length_aware_keys:
                axis = 2 if kwargs[name].ndim == 3 and name == "position_ids" else 1
                self._prompt_kwargs[name] = kwargs[name][(slice(None),) * axis + (rest,)]
        return done

    return wrap(prompt_class(), "prompt_step", prompt_step)


_chunk = partial(
    mlx_vlm_fault,
    fault_class="chunk",
    source="issue trackers",
    kills=("chunked",),
    where="input:tokens",
)


@_chunk("F13.boundary-token-twice")
def boundary_token_twice(hits: Hits) -> Patch:
    """The last token of a chunk of prefill is the first of the next one too."""
    return _boundary(lambda n: n - 1, hits)


@_chunk("F13.boundary-token-skipped")
def boundary_token_skipped(hits: Hits) -> Patch:
    """The first token after a chunk of prefill is left out."""
    return _boundary(lambda n: n + 1, hits)


_delta = partial(
    mlx_vlm_fault,
    fault_class="rope delta",
    source="mlx-vlm #1030",
    kills=("mixed_modality",),
    where=ROTATION,
    needs=(*MROPE, SHOWN),
)


def _change_deltas(batch: Any, change: Callable[[mx.array], mx.array], hits: Hits) -> None:
    """The deltas of a batch that has some are ``change(deltas)``."""
    right = getattr(batch, "_rope_deltas", None)
    if right is not None:
        batch._rope_deltas = change(right)
        hits.hit_if(differs(batch._rope_deltas, right))


@_delta("B12.one-rope-delta-slot", kills=("mixed_modality", "images_together"))
def one_rope_delta_slot(hits: Hits) -> Patch:
    """One slot for the whole batch: every row decodes with the last row's delta."""

    def share(batch: Any) -> None:
        _change_deltas(batch, lambda deltas: mx.broadcast_to(deltas[-1:], deltas.shape), hits)

    return before(batch_class(), "_step", share)


@_delta("B3.text-request-resets-positions", fault_class="stale model state")
def text_request_resets_positions(hits: Hits) -> Patch:
    """A text-only request that joins resets the deltas of the rows in flight."""

    def reset(batch: Any, other: Any) -> None:
        if other._rope_deltas is not None and not other._rope_deltas.any().item():
            _change_deltas(batch, mx.zeros_like, hits)

    return before(batch_class(), "extend", reset)


# Elsewhere who stays has its last token already.
@_delta(
    "B12.rope-deltas-filtered-by-place",
    kills=(
        "mixed_modality/image_cancelled_in_decode",
        "mixed_modality/video_cancelled_in_decode",
    ),
)
def rope_deltas_filtered_by_place(hits: Hits) -> Patch:
    """When rows leave, the first deltas are kept instead of those of the rows that stay."""
    return kept_by_place(batch_class(), "_rope_deltas", hits)


@_delta("B12.rope-delta-of-another-row")
def rope_delta_of_another_row(hits: Hits) -> Patch:
    """A join leaves each row with its neighbour's delta."""

    def roll(_: None, batch: Any, __: Any) -> None:
        _change_deltas(batch, lambda deltas: mx.roll(deltas, 1, 0), hits)

    return after(batch_class(), "extend", roll)


@_delta("B12.positions-not-advanced-past-image", kills=("images_together", "mixed_modality"))
def positions_not_advanced_past_image(hits: Hits) -> Patch:
    """Decode counts an image as so many tokens, not by its extent."""

    def forget(batch: Any, *_: Any, **__: Any) -> Any:
        _change_deltas(batch, mx.zeros_like, hits)
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


@_delta(
    "C1.padding-twice-from-mrope",
    fault_class="rope position",
    source="mlx-vlm #1055",
    kills=("ragged",),
    needs=MROPE,
)
def padding_twice_from_mrope(hits: Hits) -> Patch:
    """At decode the padding is taken off an M-RoPE position that never held it."""
    return _step_off_by(lambda batch: -padding(batch.prompt_cache), hits)


@_delta(
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
