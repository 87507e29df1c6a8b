"""Defects of prefix caching: joining rows with and without a prefix."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.mends import mend

_ar: Any = importlib.import_module("mlx_vlm.generate.ar")
_apc: Any = importlib.import_module("mlx_vlm.apc")
_caches: Any = importlib.import_module("mlx_vlm.models.cache")


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
        if not all(isinstance(row, _caches.ChunkedKVCache) for row in rows):
            return right(self, rows, lengths)
        hits.hit()
        return merged_chunks(rows)

    return wrap(_caches.ChunkedKVCache, "prefix_cache_merge", merge)


def merged_chunks(rows: Sequence[Any]) -> Any:
    """Caches of chunked attention as one of a batch; what each holds is at its tokens' columns."""

    def plain(row: Any) -> Any:
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
