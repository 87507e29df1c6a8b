"""Faults of positions: what is rotated by which offset, in prefill, at decode, at a chunk's end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import ROTATION, differs, of_row_0, rotated_at
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.plugins.mlx_vlm.library_parts import batch_class, padding, prompt_class
from conformance.power.faults.mlx_vlm.tools import MROPE, PADDED, SHOWN, mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="rope position",
    source="mlx-vlm #1055",
    kills=("ragged",),
    where=ROTATION,
    needs=("rope:RoPE*", *PADDED),
)


# In one batch from the start that shifts each row as a whole, which no attention sees.
@_fault(
    "B14.rope-offset-of-row-0",
    fault_class="scalar/array dispatch",
    source="mlx-vlm #1030",
    kills=("staggered",),
)
def rope_offset_of_row_0(hits: Hits) -> Patch:
    """All rows are rotated by row 0's offset, as `offset.item()` of it would."""
    return rotated_at(lambda _, offset: of_row_0(offset), hits)


@_fault("F12.rope-wrong-at-one-token", fault_class="rope kernel", source="issue trackers")
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


@_fault("C1.padding-twice")
def padding_twice(hits: Hits) -> Patch:
    """At decode the padding is taken off an offset that never held it."""
    return _off_by_padding(batch_class(), ("_step",), -1, hits)


@_fault("C4.columns-at-prefill")
def columns_at_prefill(hits: Hits) -> Patch:
    """Prefill counts padding in its positions, decode does not."""
    return _off_by_padding(prompt_class(), ("prompt_step", "generate"), 1, hits)


@_fault("C4.mrope-columns-at-prefill", needs=MROPE)
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


@_fault(
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
