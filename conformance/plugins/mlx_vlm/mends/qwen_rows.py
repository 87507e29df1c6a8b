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


@mend("qwen4-exp-one-padded-row", "qwen4-exp-one-padded-column")
def rows_run_without_their_padding(hits: Hits) -> Patch:
    """Rows run without their padding also where there is one row, or a piece of one column."""
    language = part("models.qwen4_exp.language")
    arrays = cache_class("ArraysCache")

    def call(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        cache, (count, length) = options.get("cache") or [], inputs.shape
        offset = cache[self.fa_idx].offset if cache else 0
        before: Any = (-offset).tolist() if isinstance(offset, mx.array) else [0]
        pads = [min(max(each, 0), length) for each in before]
        by_library = count > 1 and length > 1
        if by_library or not any(pads) or options.get("hidden_sink") is not None:
            return right(self, inputs, **options)
        hits.hit()
        given = options.pop("inputs_embeds", None)
        embedded = self.embed_tokens(inputs) if given is None else given
        positions = options.pop("position_ids", None)
        offsets = [getattr(entry, "offset", None) for entry in cache]
        found, rows = [], []
        for row, pad in enumerate(pads):
            own = slice(row, row + 1)
            caches = [
                language._extract_row_cache(entry, row)
                if isinstance(entry, arrays)
                else entry.extract(row)
                for entry in cache
            ]
            out = mx.zeros_like(embedded[own, pad:])
            if pad < length:
                options |= {"cache": caches, "mask": None, "inputs_embeds": embedded[own, pad:]}
                ids = positions if positions is None else positions[..., own, pad:]
                out = right(self, inputs[own, pad:], position_ids=ids, **options)
            else:
                _begin_n_grams(self.layers, caches)
            found.append(mx.pad(out, [(0, 0), (pad, 0), (0, 0)]))
            rows.append(caches)
        if min(pads) < length:
            cache[:] = [type(old).merge([*new]) for old, *new in zip(cache, *rows, strict=True)]
        for entry, old in zip(cache, offsets, strict=True):
            if isinstance(entry, arrays) and entry.left_padding is not None:
                entry.left_padding = entry.left_padding - length
            language._restore_batch_padding_metadata(entry, old, length)
        return mx.concatenate(found)

    def decode(right: Right, self: Any, inputs: mx.array, *, cache: Any, **options: Any) -> Any:
        offset = cache[self.model.fa_idx].offset
        if not isinstance(offset, mx.array) or not (offset < 0).any().item():
            return right(self, inputs, cache=cache, **options)
        skipped = options.pop("skip_logits", False)
        out = self.model(inputs, cache=cache, **options)
        tied = self.args.tie_word_embeddings
        head = self.model.embed_tokens.as_linear if tied else self.lm_head
        return language.LanguageModelOutput(logits=None if skipped else head(out))

    return together(
        wrap(language.Qwen4ExpModel, "__call__", call),
        wrap(language.LanguageModel, "_batch_invariant_decode", decode),
    )


def _begin_n_grams(layers: list[Any], caches: list[Any]) -> None:
    """The n-grams of a row that has no token yet begin behind an end, as the library has them."""
    for layer, entry in zip(layers, caches, strict=True):
        if "ple" in layer and isinstance(entry, cache_class("ArraysCache")) and entry[3] is None:
            n_grams = layer.ple.ple_embedding
            entry[3] = mx.full((1, n_grams.context_len), n_grams.eos_token_id, dtype=mx.int64)


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
