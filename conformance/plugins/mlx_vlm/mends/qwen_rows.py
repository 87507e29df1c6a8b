"""Rows of qwen3_5 and qwen4_exp, which these models run one by one if there is padding."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import cache_class, part


def _prefill(entry: Any) -> tuple[mx.array | None, mx.array | None]:
    """The lengths and the right padding that ``prepare`` gave a cache, if it did."""
    inner = getattr(entry, "kv_cache", entry)
    return getattr(inner, "lengths", None), getattr(inner, "_right_padding", None)


@mend("apc-qwen3-5-lengths-lost-in-merge")
def merged_rows_keep_their_lengths(hits: Hits) -> Patch:
    """Caches whose rows ran one by one still know where the rows end that are padded behind."""

    def call(right: Right, self: Any, inputs: mx.array, *args: Any, **options: Any) -> Any:
        cache = options.get("cache") or []
        before, known = list(cache), [_prefill(entry) for entry in cache]
        found = right(self, inputs, *args, **options)
        for entry, old, (lengths, padding) in zip(cache, before, known, strict=True):
            if entry is old:
                continue
            inner = getattr(entry, "kv_cache", entry)
            hits.hit_if(lengths is not None or padding is not None)
            if lengths is not None:
                inner.lengths = lengths - inputs.shape[1]
            if padding is not None:
                inner._right_padding = padding
        return found

    return together(
        wrap(part("models.qwen3_5.language").Qwen3_5Model, "__call__", call),
        wrap(part("models.qwen4_exp.language").Qwen4ExpModel, "__call__", call),
    )


@mend("qwen4-exp-dense-decode")
def blocks_are_joined_with_padding(hits: Hits) -> Patch:
    """In decode steps of padded rows the mask is one of the padding, which the blocks join."""

    def masked(found: Any, _: Any, cache: Any) -> Any:
        if not isinstance(found, str) or found != "left_padded_decode":
            return found
        hits.hit()
        return cache.make_mask(1, return_array=True)

    language = part("models.qwen4_exp.language")
    return after(language, "_create_qwen3_5_attention_mask", masked)


@mend("qwen4-exp-one-padded-row")
def one_row_runs_without_its_padding(hits: Hits) -> Patch:
    """A padded row that is alone in its batch runs without its padding, as beside another row."""
    language = part("models.qwen4_exp.language")
    arrays = cache_class("ArraysCache")

    def call(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        cache, length = options.get("cache") or [], inputs.shape[1]
        offset = cache[self.fa_idx].offset if cache else 0
        found: Any = offset.min().item() if isinstance(offset, mx.array) else 0
        pad = min(max(-found, 0), length)
        if len(inputs) > 1 or length == 1 or not pad or options.get("hidden_sink") is not None:
            return right(self, inputs, **options)
        hits.hit()
        embedded = options.pop("inputs_embeds", None)
        embedded = self.embed_tokens(inputs) if embedded is None else embedded
        offsets = [getattr(entry, "offset", None) for entry in cache]
        out = mx.zeros_like(embedded[:, pad:])
        if pad < length:
            rows = [
                language._extract_row_cache(entry, 0)
                if isinstance(entry, arrays)
                else entry.extract(0)
                for entry in cache
            ]
            ids = options.pop("position_ids", None)
            options |= {"cache": rows, "mask": None}
            ids = ids if ids is None else ids[..., pad:]
            out = right(
                self, inputs[:, pad:], inputs_embeds=embedded[:, pad:], position_ids=ids, **options
            )
            cache[:] = [type(old).merge([row]) for old, row in zip(cache, rows, strict=True)]
        for entry, old in zip(cache, offsets, strict=True):
            if isinstance(entry, arrays) and entry.left_padding is not None:
                entry.left_padding = entry.left_padding - length
            language._restore_batch_padding_metadata(entry, old, length)
        return mx.pad(out, [(0, 0), (pad, 0), (0, 0)])

    return wrap(language.Qwen4ExpModel, "__call__", call)


@mend("apc-qwen4-exp-states-of-right-padding")
def n_grams_end_where_rows_end(hits: Hits) -> Patch:
    """The states of n-grams and of their convolution end with a row's last token, not padding."""

    def update(right: Right, cache: Any, index: int, *args: Any, lengths: Any = None) -> Any:
        if index in (2, 3) and len(cache.cache) == 4 and lengths is None:
            lengths = cache.lengths
            hits.hit_if(lengths is not None)
        return right(cache, index, *args, lengths=lengths)

    return wrap(cache_class("ArraysCache"), "update_window", update)


@mend("apc-qwen4-exp-context-of-new-rows")
def new_rows_begin_behind_an_end(hits: Hits) -> Patch:
    """The n-gram context of a row without a prefix is of end tokens, beside others too."""
    n_grams: Any = None

    def made(found: list[Any], model: Any) -> list[Any]:
        nonlocal n_grams
        n_grams = next(layer.ple.ple_embedding for layer in model.model.layers if "ple" in layer)
        return found

    def merge(right: Right, kind: Any, rows: list[Any]) -> Any:
        if n_grams is not None and any(len(row.cache) == 4 and row[3] is not None for row in rows):
            for row in rows:
                if row[3] is None:
                    hits.hit()
                    shape = (1, n_grams.context_len)
                    row[3] = mx.full(shape, n_grams.eos_token_id, dtype=mx.int64)
        return right(kind, rows)

    return together(
        after(part("models.qwen4_exp.language").LanguageModel, "make_cache", made),
        wrap(cache_class("ArraysCache"), "merge", merge),
    )
