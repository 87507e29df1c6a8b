"""Defects of kept prefixes: of quantized blocks, of several rows, and of their bytes."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend

_apc: Any = importlib.import_module("mlx_vlm.apc")
_caches: Any = importlib.import_module("mlx_vlm.models.cache")
_turboquant: Any = importlib.import_module("mlx_vlm.turboquant")
_SEVERAL = 2  # axes


def _columns(found: mx.array, row: int) -> list[bytes]:
    """For each token of a row its keys or values, ``[heads, size]``, as bytes."""
    held = np.ascontiguousarray(np.array(found[row].astype(mx.float32)).swapaxes(0, 1))
    return [column.tobytes() for column in held]


def _packed(state: Any) -> list[mx.array]:
    """The arrays of quantized keys or values, ``[rows, heads, tokens, ...]``."""
    flat: Any = tree_flatten(state)
    return [array for _, array in flat if array.ndim > _SEVERAL]


@mend("apc-blocks-quantized-twice")
def blocks_are_quantized_once(hits: Hits) -> Patch:
    """What is made of blocks is quantized as it was when they were taken."""
    known: dict[bytes, list[mx.array]] = {}

    def remember(found: Any, cache: Any, batch_idx: int | None = None) -> Any:
        if hasattr(cache, "dequantize_for_apc") and found[0] is not None:
            row = batch_idx or 0
            begin = int(cache.left_padding[row].item())
            for state, plain in zip((cache.keys, cache.values), found, strict=True):
                for at, column in enumerate(_columns(plain, 0), begin):
                    known[column] = [array[row, :, at] for array in _packed(state)]
        return found

    def fill(made: Any, keys: mx.array, values: mx.array, **options: Any) -> Any:
        if not options["quantize"] or options["kv_quant_config"] is None:
            return made
        for state, plain in ((made.keys, keys), (made.values, values)):
            for row, padding in enumerate(options["left_padding"]):
                for at, column in list(enumerate(_columns(plain, row)))[padding:]:
                    hits.hit()
                    for array, packed in zip(_packed(state), known[column], strict=True):
                        array[row, :, at] = packed
        return made

    return together(
        after(_apc, "layer_kv_for_apc", remember), after(_apc, "_fill_batch_layer_cache", fill)
    )


@mend("apc-turboquant-rows-together")
def rows_of_turboquant_are_prepared(hits: Hits) -> Patch:
    """A TurboQuant cache moves the padding of rows from their end to their front, as others do."""

    def prepare(self: Any, *, right_padding: Any = None, **_: Any) -> None:
        self._right_padding = mx.array(right_padding) if any(right_padding or ()) else None

    def finalize(self: Any) -> None:
        padding = getattr(self, "_right_padding", None)
        if padding is None:
            return
        hits.hit()

        def moved(array: mx.array, _: int) -> mx.array:
            held = array[:, :, : self._idx]
            rolled: mx.array = _caches.dynamic_roll(held, padding[:, None], axis=2)
            return rolled

        self.keys = _turboquant._map_state(self.keys, moved)
        self.values = _turboquant._map_state(self.values, moved)
        self.offset = self.offset - padding
        self.left_padding = self.left_padding + padding
        self._right_padding = None
        self._refresh_fused_attention_eligibility()

    owner = _turboquant.BatchTurboQuantKVCache
    return together(replace(owner, "prepare", prepare), replace(owner, "finalize", finalize))


@mend("apc-bytes-of-temporary-objects")
def what_is_counted_stays_alive(hits: Hits) -> Patch:
    """What was counted lives until the count is done, so that no other object gets its id."""

    def count(right: Right, value: Any, seen: set[Any] | None = None) -> Any:
        seen = set() if seen is None else seen
        if value is not None:
            hits.hit()
            seen.add(lambda: value)  # holds it, whether or not it has a hash
        return right(value, seen)

    # Earlier imports of the function call this one for nested values.
    return wrap(_caches, "cache_nbytes", count)


@mend(
    "hy-v4-kept-prefixes-not-merged",
    "hy-v4-kept-prefixes-not-merged-on-cpu",
    "unlimited-ocr-kept-prefixes-not-merged",
)
def rows_of_a_subclass_are_merged(hits: Hits) -> Patch:
    """Kept caches of a model's own class are merged as those of the class that it extends."""

    def merged(right: Right, self: Any, rows: Any, lengths: Any) -> Any:
        if all(isinstance(row, _caches.KVCache) for row in rows):
            hits.hit_if(any(type(row) is not _caches.KVCache for row in rows))
            return self.merge(rows)
        return right(self, rows, lengths)

    return wrap(_caches.KVCache, "prefix_cache_merge", merged)


@mend("z1t-kept-prefixes-not-merged")
def a_kept_row_is_its_own_batch(hits: Hits) -> Patch:
    """A kept cache of Z1T goes on as it is: its model decodes one row at a time."""

    def merged(right: Right, entries: Any, lengths: Any) -> Any:
        found = right(entries, lengths)
        if found is None and [type(entry).__name__ for entry in entries] == ["Z1TCache"]:
            hits.hit()
            return entries[0]
        return found

    return wrap(importlib.import_module("mlx_vlm.apc_adapters"), "merge_cache_entries", merged)
