"""Positions and rope deltas that a model keeps, where each request must have its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_vlm.models.base import cache_position_offset

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap, wrap_each
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part

_KEEPING = ("glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl", "ernie4_5_moe_vl")
_GRIDS = ("image_grid_thw", "video_grid_thw")


def _of_row(model: Any, ids: mx.array, keep: mx.array, grids: dict[str, Any]) -> mx.array:
    """``[3, 1, columns]`` of one row: the model's own positions of its tokens, 0 for padding."""
    kept: Any = keep.tolist()
    columns = [column for column, own in enumerate(kept) if own]
    made, _ = model.get_rope_index(ids[columns][None], *(grids[name] for name in _GRIDS), None)
    parts = mx.moveaxis(made, -1, 0) if made.shape[-1] == 3 != made.shape[0] else made
    parts = parts if parts.ndim == 3 else mx.broadcast_to(parts, (3, *parts.shape))
    first, end = columns[0], ids.size - columns[-1] - 1
    return mx.pad(parts.astype(mx.int32), [(0, 0), (0, 0), (first, end)])


def _positions(model: Any, ids: mx.array, given: dict[str, Any]) -> tuple[mx.array, mx.array]:
    """Positions ``[3, rows, columns]`` and rope deltas ``[rows, 1]`` of the embedded prompts."""
    found = given.get("mask")
    mask = mx.ones_like(ids) if found is None else found
    rows = []
    for row in range(ids.shape[0]):
        # A batch that is embedded at once has one medium a row.
        grids = {
            name: grid if (grid := given.get(name)) is None or len(ids) == 1 else grid[row][None]
            for name in _GRIDS
        }
        rows.append(_of_row(model, ids[row], mask[row], grids))
    made = mx.concatenate(rows, axis=1)
    deltas = made.max(axis=(0, 2)) + 1 - mask.astype(mx.int32).sum(axis=1)
    return made, deltas[:, None]


def handed_along(family: str, hits: Hits) -> Patch:
    """The family's embeddings come with positions and deltas, and its model takes those alone."""
    model = part(f"models.{family}").Model
    decoder = part(f"models.{family}.language").LanguageModel

    def embed(found: Any, self: Any, input_ids: mx.array, *_: Any, **given: Any) -> Any:
        hits.hit()
        language_model = self.language_model
        found.position_ids, found.rope_deltas = _positions(language_model, input_ids, given)
        language_model._position_ids = None
        return found

    def call(right: Right, self: Any, inputs: mx.array, *args: Any, **options: Any) -> Any:
        if options.get("rope_deltas") is not None:
            self._rope_deltas = options["rope_deltas"]
        ids, length = options.get("position_ids"), inputs.shape[1]
        if ids is not None:
            # generate_step passes the whole prompt's with each piece.
            start = cache_position_offset(options["cache"][0]) if ids.shape[-1] > length else 0
            ids = ids[..., start : start + length]
            options["position_ids"] = mx.moveaxis(ids, 0, -1) if family.startswith("ernie") else ids
        return right(self, inputs, *args, **options)

    return together(after(model, "get_input_embeddings", embed), wrap(decoder, "__call__", call))


@mend(
    "positions-of-padding",
    "positions-of-padding-left-alone",
    "positions-of-padding-late",
    "positions-of-padding-finish",
    "positions-of-padding-slots",
    "positions-of-padding-joins",
    "positions-of-another-request",
    "positions-of-another-request-images",
    "positions-of-another-request-joint",
    "positions-of-another-request-pieces",
    "positions-of-another-prompt",
    "positions-of-another-prompt-finish",
    "positions-of-another-prompt-joint",
    "positions-of-first-piece",
    "positions-restart-after-prefix",
    single_stream=True,
)
def positions_come_with_the_request(hits: Hits) -> Patch:
    """Each request has positions and rope deltas of its own, made when it is embedded."""
    return together(*(handed_along(family, hits) for family in _KEEPING))


@mend("one-grid-of-several-images")
def a_request_keeps_all_its_grids(hits: Hits) -> Patch:
    """A batch in prefill keeps every grid of a request that has several images."""
    generate = part("generate.ar")
    merging = False

    def merge(right: Right, *args: Any) -> Any:
        nonlocal merging
        merging = True
        try:
            return right(*args)
        finally:
            merging = False

    def row(right: Callable[..., mx.array], key: str, value: mx.array, *args: Any) -> mx.array:
        if not merging or key not in _GRIDS:
            return right(key, value, *args)
        hits.hit_if(len(value) > 1)
        return value

    return together(
        wrap(generate, "_merge_prefill_prompt_kwargs", merge),
        wrap(generate, "_prompt_kwarg_row", row),
    )


def own_offset(hits: Hits) -> Callable[[Callable[[Any], int], Any], int]:
    """In place of ``cache_position_offset``: the offset of a batch's only row is the row's own."""

    def offset(right: Callable[[Any], int], cache: Any) -> int:
        own = getattr(cache, "offset", None)
        if not isinstance(own, mx.array) or own.size != 1:
            return right(cache)
        found: Any = own.item()
        hits.hit_if(right(cache) != found)
        return int(found)

    return offset


@mend("rope-of-one-padded-row", "rope-of-one-padded-row-after-prefix")
def one_mrope_row_has_its_own_offset(hits: Hits) -> Patch:
    """A batch of one row goes on at that row's offset, as one of two rows or more does."""
    families = ("qwen2_vl", "qwen2_5_vl", "qwen3_5", *_KEEPING)
    modules = [part(f"models.{family}.language") for family in families]
    return wrap_each(modules, "cache_position_offset", own_offset(hits))


def deltas_of_these_rows(hits: Hits, decoder: Any) -> Patch:
    """A prefill that is given no rope deltas has none: those kept are of another batch's rows."""

    def call(right: Right, self: Any, inputs: mx.array, *args: Any, **options: Any) -> Any:
        kept, rows = self._rope_deltas, len(inputs)
        if options.get("rope_deltas") is None and kept is not None and len(kept) not in {1, rows}:
            hits.hit_if(len(kept) < rows)
            self._rope_deltas = mx.zeros((rows, 1), mx.int32)
        return right(self, inputs, *args, **options)

    return wrap(decoder, "__call__", call)


@mend("minicpmo-deltas-of-other-rows")
def minicpmo_has_no_deltas(hits: Hits) -> Patch:
    """Prompts, whose positions are plain, take no deltas of the rows that decoded before them."""
    return deltas_of_these_rows(hits, part("models.qwen3_vl.language").LanguageModel)
