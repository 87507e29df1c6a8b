"""Batch caches: sliding windows, drafts that are rejected, rows without keys that are joined."""

from __future__ import annotations

import functools
from typing import Any

from mlx_vlm.models import cache as caches
from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


@mend("rotating-mask-while-rotated", "rotating-mask-while-rotated-in-prefill")
def masks_go_by_the_number_of_columns(hits: Hits) -> Patch:
    """The mask of several tokens after a rotated ring is made for the ring's number of columns."""

    def make_mask(right: Right, self: Any, N: int, *args: Any, **options: Any) -> Any:  # noqa: N803
        in_place = N == 1 and self._lengths is None
        if in_place or not self.rotated:
            return right(self, N, *args, **options)
        place, self._idx = self._idx, self.keys.shape[2]
        hits.hit_if(place != self._idx)
        try:
            return right(self, N, *args, **options)
        finally:
            self._idx = place

    return wrap(caches.BatchRotatingKVCache, "make_mask", make_mask)


@mend("rotating-trim-then-one")
def trimmed_columns_are_cut_off(hits: Hits) -> Patch:
    """What was trimmed is cut off before a token takes its place; its padding comes back."""

    def note(trimmed: int, self: Any, *_: Any) -> int:
        self.trimmed = bool(trimmed)
        if self.rotated:
            # Each token in a ring that went round has taken a column of padding.
            hits.hit()
            self.left_padding = self.left_padding + trimmed
        return trimmed

    def update(right: Right, self: Any, keys: Any, values: Any) -> Any:
        trimmed, self.trimmed = getattr(self, "trimmed", False), False
        if not trimmed or self.rotated or self.keys.shape[2] == self._idx:
            return right(self, keys, values)
        self.keys = self.keys[..., : self._idx, :]
        self.values = self.values[..., : self._idx, :]
        hits.hit_if(self._offset > self._idx)
        # A window with room for one more token grows, though more than it holds have been seen.
        grows = self._idx < self.max_size and self._offset > self._idx
        return (self._update_concat if grows else functools.partial(right, self))(keys, values)

    kind = caches.BatchRotatingKVCache
    return together(after(kind, "trim", note), wrap(kind, "_update_in_place", update))


@mend("laguna-ragged-drafts")
def rows_accept_equally_many_drafts(hits: Hits) -> Patch:
    """All rows of a batch accept as many drafts as the row that accepts the fewest."""
    model = part("models.laguna.language").LanguageModel

    def needed(_: Any) -> bool:
        hits.hit()
        return True

    return replace(model, "requires_uniform_batch_acceptance", property(needed))


@mend("extend-of-empty-keys-widens")
def joined_keys_keep_their_dtype(hits: Hits) -> Patch:
    """A row without keys does not widen those of the others."""

    def extend(right: Right, self: Any, other: Any) -> None:
        filled = [cache for cache in (self, other) if cache.keys is not None]
        dtype = filled[0].keys.dtype if len(filled) == 1 else None
        right(self, other)
        if dtype is not None and self.keys.dtype != dtype:
            hits.hit()
            self.keys, self.values = self.keys.astype(dtype), self.values.astype(dtype)

    return together(
        *(wrap(cache, "extend", extend) for cache in (BatchKVCache, BatchRotatingKVCache))
    )
