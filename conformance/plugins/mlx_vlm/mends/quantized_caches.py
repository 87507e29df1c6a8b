"""Quantized caches: attention over them, and the start of TurboQuant, which each prompt decides."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import mlx.core as mx
from mlx_vlm import turboquant
from mlx_vlm.models import base
from mlx_vlm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap, wrap_each
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.library_parts import part


@mend("cache-list-last-layer", "cache-list-last-layer-behind")
def last_layers_caches_are_plain(hits: Hits) -> Patch:
    """The caches of a list are quantized if their layer is: those of the last one are not."""

    def plain(made: list[Any], _: Any, left_padding: list[int], **__: Any) -> list[Any]:
        last = made[-1]
        if isinstance(last, caches.CacheList) and not _quantizes_last(made):
            hits.hit_if(any(hasattr(cache, "bits") for cache in last.caches))
            last.caches = tuple(
                caches.BatchKVCache(left_padding) if hasattr(cache, "bits") else cache
                for cache in last.caches
            )
        return made

    return after(compat.generation(), "_make_cache", plain)


def _quantizes_last(made: list[Any]) -> bool:
    return bool(caches.should_quantize_kv_layer(len(made) - 1, len(made)))


@mend("qwen3-5-padding-of-quantized-rows")
def padding_of_quantized_rows_is_masked(hits: Hits) -> Patch:
    """In a decode step of quantized rows a mask keeps each from its padding."""
    module = part("models.qwen3_5.language")

    def attend(right: Right, self: Any, x: mx.array, mask: Any, cache: Any, *args: Any) -> Any:
        if isinstance(mask, str) and mask == "left_padded_decode" and hasattr(cache, "bits"):
            hits.hit()
            mask = cache.make_mask(x.shape[1])
        return right(self, x, mask, cache, *args)

    def call(right: Right, self: Any, x: mx.array, *args: Any, **options: Any) -> Any:
        names = ("mask", "cache", "position_ids", "position_embeddings")
        given = dict(zip(names, args, strict=False)) | options
        return attend(right, self, x, *(given.get(name) for name in names))

    return wrap(module.Qwen3_5Attention, "__call__", call)


@mend("gemma2-turboquant-proxy", single_stream=True)
def codes_are_decoded_for_soft_caps(hits: Hits) -> Patch:
    """What a TurboQuant cache gives is decoded, though it has a shape."""
    names = (f"mlx_vlm.models.{family}.language" for family in ("gemma2", "phi3small"))

    def decoded(right: Right, cache: Any, keys: Any, values: Any) -> Any:
        if isinstance(keys, mx.array) or not hasattr(cache, "dequantize"):
            return right(cache, keys, values)
        hits.hit()
        return cache.dequantize(keys, values)

    return wrap_each(map(importlib.import_module, names), "dequantize_kv_state", decoded)


@mend("mllama-quantized-cross-attention", single_stream=True)
def cross_attention_leaves_the_cache_alone(hits: Hits) -> Patch:
    """Cross attention goes without the cache, which it never fills; an empty one has no state."""
    module = part("models.mllama.language")

    def attend(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        hits.hit_if(hasattr(options.get("cache"), "bits"))
        return right(self, *args, **options | {"cache": None})

    state: Any = vars(caches.QuantizedKVCache)["state"]
    empty = property(lambda self: (None, None) if self.empty() else state.fget(self), state.fset)
    return together(
        wrap(module.MllamaTextCrossAttention, "__call__", attend),
        replace(caches.QuantizedKVCache, "state", empty),
    )


# The mends of florence2's and nemotron_parse's batches are for plain caches: the entry says more.
@mend(
    "turboquant-keys-taken-for-arrays",
    single_stream=True,
    except_families=("florence2", "nemotron_parse"),
)
def quantized_caches_give_arrays(hits: Hits) -> Patch:
    """What a model computes with itself is decoded keys and values, not their codes."""

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        hits.hit()
        # Who keeps no values, as an index of keys does, has nothing there to quantize.
        found = right(self, keys, values if values.shape[-1] else keys)
        if hasattr(self, "dequantize"):
            found = self.dequantize(*found)
        else:
            sizes = {"group_size": self.group_size, "bits": self.bits}
            found = [mx.dequantize(*codes, **sizes) for codes in found]
        return found[0].astype(keys.dtype), found[1][..., : values.shape[-1]].astype(values.dtype)

    def as_it_is(right: Right, self: Any, *found: Any) -> Any:
        return found if found and isinstance(found[0], mx.array) else right(self, *found)

    def of_arrays(right: Right, queries: mx.array, keys: Any, values: Any, **options: Any) -> Any:
        if not isinstance(keys, mx.array):
            return right(queries, keys, values, **options)
        taken = {name: options[name] for name in ("scale", "mask")}
        return mx.fast.scaled_dot_product_attention(queries, keys, values, **taken)

    def depends(right: Right, inputs: Any, dependencies: Any) -> Any:
        # Codes are no arrays that could wait for others; both are computed with the cache.
        return right(inputs, dependencies) if isinstance(inputs, mx.array) else inputs

    turbo = (turboquant.TurboQuantKVCache, turboquant.BatchTurboQuantKVCache)
    uniform = (caches.QuantizedKVCache, caches.BatchQuantizedKVCache)
    return together(
        wrap_each(turbo + uniform, "update_and_fetch", update),
        wrap_each(turbo, "dequantize", as_it_is),
        wrap(mx, "depends", depends),
        wrap(base, "_turboquant_attention_applies", lambda *_: False),
        wrap(base, "quantized_scaled_dot_product_attention", of_arrays),
        *_at_one_place(),
    )


def _at_one_place() -> list[Patch]:
    """glm5_next attends to latents in short calls, and to projected keys in others.

    What is quantized would hang on the longest row.
    """
    module = sys.modules.get("mlx_vlm.models.glm5_next.language")
    return [replace(module, "DECODE_BLOCK_SIZE", sys.maxsize)] if module else []


@mend("size-of-quantized-caches")
def quantized_caches_know_their_size(hits: Hits) -> Patch:
    """The size of a quantized batch cache is its number of columns, as a plain one's is."""

    def size(self: Any) -> int:
        hits.hit_if(self._idx)
        return int(self._idx)

    batch = (caches.BatchQuantizedKVCache, turboquant.BatchTurboQuantKVCache)
    return together(*(replace(kind, "size", size) for kind in batch))


@mend("turboquant-start-of-longest-prompt")
def each_prompt_decides_about_the_start(hits: Hits) -> Patch:
    """A row is quantized if its own prompt is as long as the start, whatever is beside it.

    Prompts that decide otherwise are prefilled one group after another, and decode together.
    """
    module = compat.generation()

    def extend(right: Right, ours: list[Any], theirs: list[Any]) -> Any:
        joinable = [_joinable(*pair, hits) for pair in zip(ours, theirs, strict=False)]
        return right(joinable or ours, theirs)

    def step(right: Right, self: Any, **options: Any) -> Any:
        queue = self._unprocessed_sequences
        turbo = self.kv_bits is not None and module.turboquant_enabled(
            self.kv_bits, self.kv_quant_scheme
        )
        if not queue or not turbo:
            return right(self, **options)
        quantized = [len(entry[1]) >= self.quantized_kv_start for entry in queue]
        group = len(list(takewhile(lambda one: one is quantized[0], quantized)))
        hits.hit_if(group < min(len(queue), self.prefill_batch_size))
        # The others wait outside, or they would be admitted with the first ones.
        self._unprocessed_sequences = queue[:group]
        try:
            return right(self, **options)
        finally:
            self._unprocessed_sequences = self._unprocessed_sequences + queue[group:]

    return together(
        wrap(module, "_extend_cache", extend), wrap(module.BatchGenerator, "_next", step)
    )


def _joinable(ours: Any, theirs: Any, hits: Hits) -> Any:
    """Our cache, or one that rows of another kind can join."""
    if isinstance(ours, caches.CacheList):
        pairs = zip(ours.caches, theirs.caches, strict=True)
        ours.caches = tuple(_joinable(*pair, hits) for pair in pairs)
        return ours
    if {type(ours).__name__, type(theirs).__name__} != {"BatchKVCache", "BatchTurboQuantKVCache"}:
        return ours
    hits.hit()
    return _RowsOfBothKinds(ours)


class _RowsOfBothKinds:
    """Rows of which some are quantized; for attention it gives arrays of all of them.

    Attributes:
        parts: the cache of the plain rows, and that of the quantized ones, each in their order.
        kinds: of each row, the part that has it.
        keys: not one array; models that let it wait for another look it up, as they do values.
    """

    keys: Any = None
    values: Any = None

    def __init__(self, cache: Any) -> None:
        kind = int(hasattr(cache, "bits"))
        self.parts: dict[int, Any] = {kind: cache}
        self.kinds = [kind] * cache.batch_size
        # Layers that share keys read them off the state.
        self._given: list[mx.array] | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> list[mx.array]:
        found: dict[int, Any] = {}
        for kind, entry in self.parts.items():
            rows = mx.array([row for row, own in enumerate(self.kinds) if own == kind])
            got = entry.update_and_fetch(keys[rows], values[rows])
            found[kind] = entry.dequantize(*got) if kind else got
        padded = {
            kind: [mx.pad(a.astype(keys.dtype), self._padding(kind)) for a in arrays]
            for kind, arrays in found.items()
        }
        self._given = [
            self._in_order(lambda kind: padded[kind][0]),
            self._in_order(lambda kind: padded[kind][1]),
        ]
        return self._given

    def filter(self, batch_indices: mx.array) -> None:
        self._given = None
        keep: Any = batch_indices.tolist()
        for kind in list(self.parts):
            place = [sum(k == kind for k in self.kinds[:row]) for row in keep]
            rows = [at for at, row in zip(place, keep, strict=True) if self.kinds[row] == kind]
            if rows:
                self.parts[kind].filter(mx.array(rows))
            else:
                del self.parts[kind]
        self.kinds = [self.kinds[row] for row in keep]

    def extend(self, other: Any) -> None:
        self._given = None
        other = other if isinstance(other, _RowsOfBothKinds) else _RowsOfBothKinds(other)
        for kind, entry in other.parts.items():
            if kind in self.parts:
                self.parts[kind].extend(entry)
            else:
                self.parts[kind] = entry
        self.kinds += other.kinds

    def make_mask(self, N: int, return_array: bool = False, **options: Any) -> Any:  # noqa: ARG002, FBT001, FBT002, N803
        return caches.create_causal_mask(
            N, offset=self._idx, left_padding=self.left_padding, **options
        )

    @property
    def _idx(self) -> int:
        return int(max(entry._idx for entry in self.parts.values()))

    @property
    def offset(self) -> mx.array:
        return self._in_order(lambda kind: self.parts[kind].offset)

    @offset.setter
    def offset(self, value: mx.array) -> None:
        for kind, entry in self.parts.items():
            entry.offset = value[mx.array([r for r, own in enumerate(self.kinds) if own == kind])]

    @property
    def left_padding(self) -> mx.array:
        return self._in_order(
            lambda kind: self.parts[kind].left_padding + (self._idx - self.parts[kind]._idx)
        )

    @property
    def state(self) -> list[Any]:
        return self._given or [entry.state for entry in self.parts.values()]

    @property
    def nbytes(self) -> int:
        return sum(int(entry.nbytes) for entry in self.parts.values())

    def size(self) -> int:
        return self._idx

    def empty(self) -> bool:
        return all(entry.empty() for entry in self.parts.values())

    def _padding(self, kind: int) -> list[tuple[int, int]]:
        """All rows end at the same column."""
        return [(0, 0), (0, 0), (self._idx - self.parts[kind]._idx, 0), (0, 0)]

    def _in_order(self, of: Callable[[int], mx.array]) -> mx.array:
        """The parts' arrays, in the order of the rows."""
        rows = [row for kind in self.parts for row, own in enumerate(self.kinds) if own == kind]
        return mx.concatenate([of(kind) for kind in self.parts])[mx.argsort(mx.array(rows))]
