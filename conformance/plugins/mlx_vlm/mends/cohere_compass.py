"""Defects of cohere_compass: padded rows, and what texts and images hand along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part, prompt_class

_FEATURES = "deepstack_visual_embeds"


def _texts_have_positions(hits: Hits) -> Patch:
    """The embeddings of a text come with positions and a rope delta of 0."""

    def embed(found: Any, _: Any, ids: mx.array, *__: Any, **given: Any) -> Any:
        if found.visual_pos_masks is None:
            hits.hit()
            mask = given.get("mask")
            kept = mx.ones_like(ids) if mask is None else mask.astype(mx.int32)
            rows = mx.maximum(mx.cumsum(kept, axis=-1) - 1, 0)
            found.position_ids = mx.broadcast_to(rows, (3, *rows.shape))
            found.rope_deltas = mx.zeros((len(rows), 1), mx.int32)
        return found

    return after(part("models.cohere_compass").Model, "get_input_embeddings", embed)


@mend(
    "cohere-compass-positions-of-some-rows",
    "cohere-compass-positions-of-some-rows-mixed",
    "cohere-compass-deltas-of-last-prefill",
)
def texts_hand_positions_along(hits: Hits) -> Patch:
    """A text hands positions and its rope delta along, as an image request does."""
    return _texts_have_positions(hits)


class _WithoutPadding:
    """A cache as attention is given it: it does not say how far its rows are padded."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        if name == "left_padding":
            raise AttributeError(name)
        return getattr(self._cache, name)


@mend("cohere-compass-padded-rows")
def padding_is_left_to_masks(hits: Hits) -> Patch:
    """Padding is known once, from the generator, and masks alone keep it out of attention."""

    def call(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        cache = options.get("cache")
        if cache and hasattr(cache[0], "left_padding"):
            options.pop("attention_mask", None)
        return right(self, *args, **options)

    def attend(right: Right, self: Any, *args: Any, cache: Any = None, **options: Any) -> Any:
        if getattr(cache, "left_padding", None) is not None:
            hits.hit()
            cache = _WithoutPadding(cache)
        return right(self, *args, cache=cache, **options)

    return together(
        _texts_have_positions(hits),
        wrap(part("models.cohere_compass.language").LanguageModel, "__call__", call),
        wrap(part("models.cohere_compass.language").Attention, "__call__", attend),
    )


class _Features:
    """Deep features of a batch: the features of every row, and their places in each row."""

    def __init__(self, hits: Hits) -> None:
        self._hits = hits
        self._type = part("models.cohere_compass.language").DeepstackVisualFeatures

    def patch(self) -> Patch:
        generate = part("generate.ar")
        return together(
            after(generate, "_split_prompt_kwargs_per_row", self._split),
            after(generate, "_merge_prefill_prompt_kwargs", self._merge),
            after(generate.BatchGenerator, "_build_mixed_prompt_batch", self._mix),
            wrap(prompt_class(), "remove", self._remove),
        )

    def _split(self, rows: list[dict[str, Any]], *_: Any) -> list[dict[str, Any]]:
        """Each prompt takes its own part if several were embedded at once."""
        found = rows[0].get(_FEATURES)
        if isinstance(found, self._type) and len(rows) > 1:
            for index, row in enumerate(rows):
                row[_FEATURES] = self._rows(found, [index])
        return rows

    def _merge(
        self, found: tuple[mx.array, dict[str, Any]], rows: Sequence[Any], _: Any
    ) -> tuple[mx.array, dict[str, Any]]:
        embedded, merged = found
        if len(rows) > 1:
            width = embedded.shape[1]
            self._put(merged, rows, lambda _, own: (0, width - own, width))
        return embedded, merged

    def _mix(self, batch: Any, _: Any, sequences: Sequence[Any]) -> Any:
        """Beside a row that reuses a prefix all rows go on behind the kept columns."""
        if batch is not None:
            kept = [meta["prefix_len"] for meta in batch._apc_meta]
            first = batch.prompt_cache[0]
            start = first._offset if hasattr(first, "_offset") else first._idx
            rows, width = [sequence[3] for sequence in sequences], start + max(batch._suffix_lens)
            self._put(batch._prompt_kwargs, rows, lambda row, _: (kept[row], start, width))
        return batch

    def _put(
        self,
        merged: dict[str, Any],
        rows: Sequence[Any],
        placed: Callable[[int, int], tuple[int, int, int]],
    ) -> None:
        """Put the features of all rows into ``merged``.

        Args:
            placed: of a row and its width, the tokens to leave out, the column of the next one,
                and the number of columns.
        """
        given = [(row or {}).get(_FEATURES) for row in rows]
        typed = [one for one in given if isinstance(one, self._type)]
        if not typed:
            return
        self._hits.hit()
        masks, layers = [], []
        for index, (row, one) in enumerate(zip(rows, given, strict=True)):
            # Unlike the features, this mask has lost the padding of prompts embedded at once.
            own = mx.zeros((1, 0), mx.bool_) if one is None else row["visual_pos_masks"]
            skip, start, width = placed(index, own.shape[1])
            left = own[:, skip:]
            masks.append(mx.pad(left, [(0, 0), (start, width - start - left.shape[1])]))
            if one is not None:
                seen: Any = own[:, :skip].sum().item()
                layers.append([layer[seen:] for layer in one.embeddings])
        joined = [mx.concatenate(list(parts)) for parts in zip(*layers, strict=True)]
        merged[_FEATURES] = self._type(joined, mx.concatenate(masks))

    def _remove(self, right: Right, batch: Any, uid: int) -> None:
        keep = [row for row, own in enumerate(batch.uids) if own != uid]
        right(batch, uid)
        found = batch._prompt_kwargs.get(_FEATURES)
        if isinstance(found, self._type) and keep and len(found.position_mask) > len(keep):
            batch._prompt_kwargs[_FEATURES] = self._rows(found, keep)

    def _rows(self, found: Any, keep: Sequence[int]) -> Any:
        """The features of some rows."""
        counts: Any = found.position_mask.sum(axis=1).tolist()
        starts = [sum(counts[:row]) for row in keep]
        spans = [(start, start + counts[row]) for start, row in zip(starts, keep, strict=True)]
        layers = [mx.concatenate([layer[a:b] for a, b in spans]) for layer in found.embeddings]
        return self._type(layers, found.position_mask[mx.array(list(keep))])


@mend("cohere-compass-features-of-first-row", "cohere-compass-features-beside-reused-prefix")
def features_of_every_row(hits: Hits) -> Patch:
    """A prefill has the deep features of all its rows."""
    return _Features(hits).patch()
