"""Defects of Mllama: layers that cross-attend to an image, and positions."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part

_NAMES = ("cross_attention_states", "cross_attention_mask", "full_text_row_masked_out_mask")
_MASKED = -1e9  # as the model has it
# Inputs of cross attention for a row: states, their mask, and which tokens have any.
_Image = tuple[mx.array, mx.array, mx.array]


@mend("mllama-cross-attention-of-text", single_stream=True)
def text_has_no_cross_attention(hits: Hits) -> Patch:
    """Where there is no image, layers that attend to one are left out, as in transformers."""

    def layer(right: Right, self: Any, hidden_states: Any, **options: Any) -> Any:
        if options["cross_attention_states"] is not None:
            return right(self, hidden_states, **options)
        hits.hit()
        return hidden_states

    return wrap(part("models.mllama.language").MllamaCrossAttentionDecoderLayer, "__call__", layer)


@mend("mllama-positions-of-columns")
def rows_have_their_own_positions(hits: Hits) -> Patch:
    """Self attention rotates by the rows' own offsets."""
    language = part("models.mllama.language")
    right_offset = language.cache_position_offset
    attention = threading.local()

    def attend(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        attention.runs = True
        try:
            return right(self, *args, **options)
        finally:
            attention.runs = False

    def offset(cache: Any) -> Any:
        if not getattr(attention, "runs", False):  # the masks of prompts go by columns
            return right_offset(cache)
        hits.hit_if(isinstance(cache.offset, mx.array))
        return cache.offset

    return together(
        wrap(language.MllamaTextSelfAttention, "__call__", attend),
        replace(language, "cache_position_offset", offset),
    )


@mend("mllama-tiles-of-padding", single_stream=True)
def the_mask_is_handed_on(hits: Hits) -> Patch:
    """The single stream hands the mask of the image's last row on, with its states."""

    def called(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        given: Any = options.get(_NAMES[0])
        if isinstance(given, tuple):
            hits.hit()
            options |= dict(zip(_NAMES, given, strict=True))
        output = right(self, *args, **options)
        found: list[Any] = [options.get(name) for name in _NAMES]
        states, *masks = found
        if states is not None and all(mask is not None for mask in masks):
            output.cross_attention_states = (states, *map(_last, masks))
        return output

    return wrap(part("models.mllama.language").LanguageModel, "__call__", called)


@mend("mllama-image-lost-after-prefill", "mllama-image-lost-after-prefill-joint")
def rows_keep_their_images(hits: Hits) -> Patch:
    """Each row's states and mask stay with its cache, and are there in each decode step."""
    module = part("models.cache")
    turbo = part("turboquant").BatchTurboQuantKVCache
    kinds = (module.BatchKVCache, module.BatchQuantizedKVCache, turbo)

    def called(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        caches: list[Any] = options.get("cache") or [None] * len(self.layers)
        cache = caches[self.config.cross_attention_layers[0]]
        if not isinstance(cache, kinds):
            return right(self, *args, **options)
        images: list[Any] = [options.get(name) for name in _NAMES]
        if all(image is not None for image in images):
            present = options.get("rows_with_image", mx.ones(images[0].shape[0])).tolist()
            last = [images[0], *map(_last, images[1:])]
            cache.images = [
                tuple(part[row : row + 1] for part in last) if there else None
                for row, there in enumerate(present)
            ]
        elif any(_images(cache)):
            hits.hit()
            options |= _joined(_images(cache))
        return right(self, *args, **options)

    def filtered(_: Any, self: Any, rows: Any) -> None:
        if hasattr(self, "images"):
            rows = rows.tolist() if isinstance(rows, mx.array) else rows
            self.images = [self.images[row] for row in rows]

    def extended(right: Right, self: Any, other: Any) -> None:
        images = _images(self) + _images(other)
        right(self, other)
        if any(images):
            self.images = images

    return together(
        _rows_without_image_are_left_alone(),  # the inner one: it sees what is handed on
        wrap(part("models.mllama.language").LanguageModel, "__call__", called),
        *(after(kind, "filter", filtered) for kind in kinds),
        *(wrap(kind, "extend", extended) for kind in kinds),
    )


@mend("mllama-image-split-over-rows")
def rows_are_joined_with_their_images(hits: Hits) -> Patch:
    """Prompts are joined with an image, or none, for each row, and masks padded like the rows."""

    def merged(right: Right, kwargs: Any, input_ids: Any) -> Any:
        kwargs = [dict(each or {}) for each in kwargs]
        images = [[each.pop(name, None) for name in _NAMES] for each in kwargs]
        rows = [
            tuple(parts) if all(part is not None for part in parts) else None for parts in images
        ]
        embeds, joined = right(kwargs, input_ids)
        if any(rows):
            hits.hit_if(len(rows) > 1)
            joined |= _joined(rows, columns=max(map(len, input_ids)))
        return embeds, joined

    def removed(right: Right, self: Any, uid: Any) -> None:
        columns = self.prompt_cache[0].size()
        right(self, uid)
        if self.prompt_cache:  # columns that only the removed row needed are cut off
            gone = columns - self.prompt_cache[0].size()
            for name in _NAMES[1:]:
                if name in self._prompt_kwargs:
                    self._prompt_kwargs[name] = self._prompt_kwargs[name][:, :, gone:]

    generate = part("generate.ar")
    return together(
        wrap(generate, "_merge_prefill_prompt_kwargs", merged),
        wrap(generate.PromptProcessingBatch, "remove", removed),
        _rows_without_image_are_left_alone(),
    )


@mend("mllama-mask-keeps-padding")
def masks_lose_the_padding_of_their_prompt(hits: Hits) -> Patch:
    """Where the processor's padding is cut off a prompt, it is cut off the prompt's masks, too."""

    def unpadded(made: Any, _: Any, attention_mask: Any, *__: Any) -> Any:
        for row, (prompt, kwargs) in enumerate(zip(*made, strict=True)):
            for name in _NAMES[1:]:
                mask = kwargs.get(name)
                if mask is None or attention_mask is None or mask.shape[2] == len(prompt):
                    continue
                hits.hit()
                start = attention_mask[row].tolist().index(1)
                kwargs[name] = mask[:, :, start : start + len(prompt)]
        return made

    generate = part("generate.ar")
    return after(generate, "_unpad_batch_prompts", unpadded)


def _last(mask: Any) -> Any:
    """The keys that the last token may attend to."""
    return mask[:, :, -1:]


def _images(cache: Any) -> list[_Image | None]:
    """The image of each row of a batch's cache."""
    return getattr(cache, "images", None) or [None] * cache.offset.shape[0]


def _joined(rows: list[Any], columns: int = 1) -> dict[str, Any]:
    """The rows' images as the model gets them, and which rows have one."""
    first: _Image = next(row for row in rows if row)
    tokens = max(row[0].shape[1] for row in rows if row)
    joined: list[list[mx.array]] = [[], [], []]
    for row in rows:
        states, mask, full = row or (mx.zeros_like(first[0]), *map(mx.zeros_like, first[1:]))
        left, more = columns - mask.shape[2], tokens - states.shape[1]
        if left < 0:  # for a row without an image, made like the first row's
            mask, full, left = mask[:, :, -columns:], full[:, :, -columns:], 0
        joined[0].append(mx.pad(states, [(0, 0), (0, more), (0, 0)]))
        mask = mx.pad(mask, [(0, 0), (0, 0), (left, 0), (0, 0)])
        joined[1].append(mx.pad(mask, [(0, 0), (0, 0), (0, 0), (0, more)], constant_values=_MASKED))
        joined[2].append(mx.pad(full, [(0, 0), (0, 0), (left, 0), (0, 0)]))
    parts = {name: mx.concatenate(each) for name, each in zip(_NAMES, joined, strict=True)}
    return {**parts, "rows_with_image": mx.array([bool(row) for row in rows])}


def _rows_without_image_are_left_alone() -> Patch:
    """Layers that attend to an image change only the rows that have one."""
    language, call = part("models.mllama.language"), threading.local()

    def called(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        call.rows = options.get("rows_with_image")
        return right(self, *args, **options)

    def layer(right: Right, self: Any, hidden_states: Any, **options: Any) -> Any:
        found = right(self, hidden_states, **options)
        if call.rows is None:
            return found
        return mx.where(call.rows[:, None, None], found, hidden_states)

    return together(
        wrap(language.LanguageModel, "__call__", called),
        wrap(language.MllamaCrossAttentionDecoderLayer, "__call__", layer),
    )
