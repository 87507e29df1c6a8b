"""Defects of prefix caching: keys of prompts, what is kept, joining rows with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import prefix_caching
from conformance.plugins.mlx_vlm.library_parts import part

_ar: Any = part("generate.ar")
_apc: Any = part("apc")
_caches: Any = part("models.cache")


@mend("apc-cold-rows-like-layer-0")
def cold_rows_are_like_their_layer(hits: Hits) -> Patch:
    """The zeros of a row without a prefix have the shape of that layer's keys, or of its values."""

    def states(pick: dict[str, Any], layer: int) -> tuple[mx.array, mx.array]:
        if pick.get("warm_cache") is not None:
            cache, length = pick["warm_cache"][layer], pick["prefix_len"]
            return cache.keys[..., :length, :], cache.values[..., :length, :]
        blocks = pick["matched_blocks"]
        keys = mx.concatenate([block.keys[layer] for block in blocks], axis=2)
        return keys, mx.concatenate([block.values[layer] for block in blocks], axis=2)

    def make(
        right: Right,
        picks: Sequence[dict[str, Any] | None],
        num_layers: int,
        kv_quant_config: Any = None,
    ) -> Any:
        lengths = [pick["prefix_len"] if pick else 0 for pick in picks]
        longest = max(lengths, default=0)
        if not longest:
            return right(picks, num_layers, kv_quant_config)
        sample = next(pick for pick in picks if pick)
        first = states(sample, 0)[0].shape
        made = []
        for layer in range(num_layers):
            rows = [states(pick, layer) if pick else None for pick in picks]
            like = states(sample, layer)
            hits.hit_if(any((*s.shape[:2], s.shape[3]) != (*first[:2], first[3]) for s in like))
            quantize = kv_quant_config is not None and _caches.should_quantize_kv_layer(
                layer, num_layers
            )
            made.append(
                _apc._fill_batch_layer_cache(
                    *(_padded([row and row[i] for row in rows], like[i], longest) for i in (0, 1)),
                    left_padding=[longest - length for length in lengths],
                    offset=lengths,
                    quantize=quantize,
                    kv_quant_config=kv_quant_config,
                )
            )
        return made, longest

    return wrap(_apc, "make_warm_batch_kv_cache_multi", make)


def _padded(rows: Sequence[mx.array | None], like: mx.array, longest: int) -> mx.array:
    """All rows, with zeros in front of each shorter row."""
    padded = []
    for row in rows:
        held = row if row is not None else like[:, :, :0]
        padded.append(mx.pad(held, [(0, 0), (0, 0), (longest - held.shape[2], 0), (0, 0)]))
    return mx.concatenate(padded, axis=0)


@mend("apc-state-not-made-yet", "apc-empty-cache-of-a-list")
def what_is_not_filled_is_stored_so(hits: Hits) -> Patch:
    """A cache, or a state of one, that no step has filled yet is stored as not filled."""

    def states(right: Right, self: Any, idx: int) -> Any:
        if all(state is not None for state in self.cache):
            return right(self, idx)
        hits.hit()
        cache = type(self)(len(self.cache))
        cache.cache = [None if state is None else state[idx : idx + 1] for state in self.cache]
        return cache

    def keys(right: Right, self: Any, idx: int) -> Any:
        if self.keys is not None:
            return right(self, idx)
        hits.hit()
        return _caches.KVCache()

    return together(
        wrap(_caches.ArraysCache, "extract", states), wrap(_caches.BatchKVCache, "extract", keys)
    )


@mend("apc-chunked-caches-merge-empty")
def chunked_caches_merge_what_they_hold(hits: Hits) -> Patch:
    """A cache of chunked attention is merged with what it holds, at the columns of its tokens."""

    def merge(right: Right, self: Any, rows: Sequence[Any], lengths: Any) -> Any:
        # What was merged comes back as a plain cache.
        either = (_caches.ChunkedKVCache, _caches.KVCache)
        chunked = any(isinstance(row, _caches.ChunkedKVCache) for row in rows)
        if not chunked or not all(isinstance(row, either) for row in rows):
            return right(self, rows, lengths)
        hits.hit()
        return merged_chunks(rows)

    return together(
        wrap(_caches.ChunkedKVCache, "prefix_cache_merge", merge),
        wrap(_caches.KVCache, "prefix_cache_merge", merge),
    )


def merged_chunks(rows: Sequence[Any]) -> Any:
    """Caches of chunked attention as one of a batch; what each holds is at its tokens' columns."""

    def plain(row: Any) -> Any:
        if not isinstance(row, _caches.ChunkedKVCache):
            return row
        cache = _caches.KVCache()
        if row.keys is None:
            return cache
        # What was cut off in front is in chunks that no later token attends to.
        held = row.offset - row.start_position
        pad = [(0, 0), (0, 0), (row.start_position, 0), (0, 0)]
        cache.keys, cache.values = (mx.pad(s[:, :, :held], pad) for s in (row.keys, row.values))
        cache.offset = row.offset
        return cache

    return _caches.BatchKVCache.merge([plain(row) for row in rows])


@mend("apc-checkpoint-inside-image")
def media_tokens_are_known(hits: Hits) -> Patch:
    """Which tokens are media is known of the requests, so that checkpoints lie behind them."""

    def note(self: Any, prompts: Any, *_: Any, **options: Any) -> None:
        media = vars(self).setdefault("_media_of_requests", set())
        given = options.get("prompt_kwargs") or [{}] * len(prompts)
        for prompt, arguments in zip(prompts, given, strict=True):
            kinds = arguments.get("mm_token_type_ids")
            if kinds is not None:
                media |= {int(t) for t, kind in zip(prompt, kinds[0].tolist(), strict=True) if kind}

    def known(found: set[int], self: Any) -> set[int]:
        own: set[int] = vars(self).get("_media_of_requests", set())
        hits.hit_if(own - found)
        return found | own

    return together(
        before(_ar.BatchGenerator, "insert", note),
        after(_ar.BatchGenerator, "_apc_media_token_ids", known),
    )


@mend("apc-new-image-beside-reused-prefix")
def images_are_whole_beside_kept_columns(hits: Hits) -> Patch:
    """An image sees itself both ways beside kept columns, too, and is not cut where others end."""
    text = part("models.gemma4.language").Gemma4TextModel

    def overlay(right: Right, self: Any, mask: mx.array, kinds: mx.array) -> mx.array:
        length, before = mask.shape[-2], mask.shape[-1] - mask.shape[-2]
        if kinds.shape[1] != length or before <= 0:
            found: mx.array = right(self, mask, kinds)
            return found
        hits.hit()
        alone = mx.zeros((1, 1, length, length), mx.bool_)
        both_ways: mx.array = right(self, alone, kinds)
        return mask | mx.pad(both_ways, [(0, 0), (0, 0), (0, 0), (before, 0)])

    def step(right: Right, self: Any) -> int:
        model, ends, start = self.model, self._suffix_lens, self._processed_prompt_columns
        if self._right_pad_per_row is None or self.prefill_step_size is not None:
            return int(right(self))
        made: list[Any] = []

        def noted(*args: Any, **options: Any) -> Any:
            made.append(model(*args, **options))
            return made[-1]

        # No row seems to end here.
        self.model, self._suffix_lens = noted, [1 + sum(ends)] * len(ends)
        try:
            columns = int(right(self))
        finally:
            self.model, self._suffix_lens = model, ends
        for row, end in enumerate(ends):
            if start < end <= start + columns:
                hits.hit_if(end < start + columns)
                logits = getattr(made[0], "logits", made[0])
                self._finished_prompt_logits[self.uids[row]] = logits[row, end - start - 1]
        return columns

    return together(
        wrap(text, "_apply_blockwise_bidirectional_overlay", overlay),
        wrap(_ar.PromptProcessingBatch, "prompt_step", step),
    )


# Other names of sounds among processors' outputs than the one that the server knows.
_SOUNDS = (
    "audio_input_ids",
    "audio_features",
    "input_audio_embeds",
    "input_values",
    "sound_clips",
)


@mend("apc-sound-not-in-key")
def sounds_are_in_the_key(hits: Hits) -> Patch:
    """A prompt's key counts its sound under each name that a processor gives it.

    What the server does in the midst of other things is a function of the engine's here.
    """

    def key(right: Right, loaded: Any, made: Any, tenant: str = "") -> int:
        found: int = right(loaded, made, tenant)
        sounds = {name: made.extra[name] for name in _SOUNDS if made.extra.get(name) is not None}
        hits.hit_if(sounds)
        if not sounds:
            return found
        return int(_apc.semantic_extra_hash(image_hash=found, media=sounds))

    return wrap(prefix_caching, "semantic_hash", key)


@mend("apc-images-in-a-list")
def images_in_a_list_are_hashed(hits: Hits) -> Patch:
    """Of images in a list each is hashed, and none of them is dropped."""

    def payload(right: Right, pixel_values: Any = None, image_ref: Any = None) -> int:
        found: int = right(pixel_values, image_ref)
        if not isinstance(pixel_values, (list, tuple)):
            return found
        hashed = int(_apc._hash_payload(pixel_values))
        hits.hit_if(hashed != found)
        return hashed

    return wrap(_apc, "hash_image_payload", payload)


_turboquant: Any = part("turboquant")
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

    return wrap(part("apc_adapters"), "merge_cache_entries", merged)
