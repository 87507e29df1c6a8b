"""Defects of joining the arguments of several requests for one prefill."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap, wrap_each
from conformance.core.mends import mend

_ar: Any = importlib.import_module("mlx_vlm.generate.ar")
_FEATURES = "deepstack_visual_embeds"
_MASK = "visual_pos_masks"
# Arguments of the language model about each token; zero for text.
_KINDS = (_MASK, "mm_token_type_ids", "token_type_ids")
# What embedding gives, all of which the language model may need; the rest is the processor's.
_EMBEDDED = frozenset(
    importlib.import_module("mlx_vlm.models.base").InputEmbeddingsFeatures.__dataclass_fields__
)

Rows: TypeAlias = list[dict[str, Any]]


@mend(
    "media-arrays-over-rows",
    "media-arrays-over-rows-labels",
    "media-arrays-over-rows-sounds",
    "deepseek-vl-v2-arrays-over-rows",
    # It hides phi4mm-adapters-of-last-request, which has no mend.
    except_families=("phi4mm_adapters",),
)
def consumed_arrays_are_left_out(hits: Hits) -> Patch:
    """Arrays of the processor that do not fit together are left out, as the embeddings hold them.

    What embedding itself gives is padded in each axis that is as long as the prompt.
    """

    def merged(right: Right, rows: Rows, ids: Sequence[Any]) -> Any:
        lengths = [len(row) for row in ids]
        for name in _arrays(rows):
            given = [(row.get(name), length) for row, length in zip(rows, lengths, strict=True)]
            if _fit(name, given):
                continue
            hits.hit()
            if name not in _EMBEDDED:
                rows = [{n: v for n, v in row.items() if n != name} for row in rows]
                continue
            rows = [
                row if v is None else {**row, name: _padded(v, length, max(lengths))}
                for row, (v, length) in zip(rows, given, strict=True)
            ]
        return right(rows, ids)

    return wrap(_ar, "_merge_prefill_prompt_kwargs", merged)


@mend(
    "arguments-of-some-rows",
    "arguments-of-some-rows-ignored",
    "qwen3-vl-mask-of-some-rows",
    "qwen3-vl-mask-of-some-rows-pieces",
    "zaya1-vl-mask-of-rows",
)
def rows_of_text_have_masks(hits: Hits) -> Patch:
    """A row without media beside rows with some has their masks too, with zeros for its tokens."""

    def change(rows: Rows, lengths: list[int]) -> Rows:
        for name in _KINDS:
            rows = _with_zeros(rows, lengths, name, hits)
        return rows

    return _before_merge(change)


@mend("qwen3-vl-features-of-first-row", "qwen3-vl-features-of-first-piece")
def features_are_aligned_with_tokens(hits: Hits) -> Patch:
    """Each row's deep features are put together, padded and cut with the tokens they belong to."""

    def aligned(row: dict[str, Any], length: int) -> dict[str, Any]:
        features = row.get(_FEATURES)
        if not isinstance(features, (list, tuple)) or row.get(_MASK) is None:
            return row
        hits.hit()
        stacked = mx.stack(list(features), axis=1)  # [places, layers, width]
        whole = mx.zeros((1, length, *stacked.shape[1:]), stacked.dtype)
        whole[0, _places(row[_MASK])] = stacked
        return {**row, _FEATURES: whole}

    def change(rows: Rows, lengths: list[int]) -> Rows:
        rows = [aligned(row, length) for row, length in zip(rows, lengths, strict=True)]
        return _with_zeros(rows, lengths, _FEATURES, hits)

    def called(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        features = options.get(_FEATURES)
        if isinstance(features, mx.array) and features.ndim == 4:
            flat, places = features.flatten(0, 1), _places(options[_MASK])
            layers = range(features.shape[2])
            options[_FEATURES] = [flat[places, n] for n in layers] if places.size else None
        return right(self, *args, **options)

    models = (
        importlib.import_module("mlx_vlm.models.qwen3_vl.language").Qwen3VLModel,
        (importlib.import_module("mlx_vlm.models.qwen3_vl_moe.language").Qwen3VLMoEModel),
    )
    return together(_before_merge(change), wrap_each(models, "__call__", called))


@mend("granite4-vision-features-by-offset", "granite4-vision-features-by-offset-joint")
def features_are_cut_by_the_generator(hits: Hits) -> Patch:
    """Deep features and their mask are padded and cut with the tokens they belong to."""
    language = importlib.import_module("mlx_vlm.models.granite4_vision.language")

    def aligned(row: dict[str, Any]) -> dict[str, Any]:
        features = row.get(_FEATURES)
        if features is None or features.ndim == 4:
            return row
        # [layers, length, width] to [1, length, layers, width]
        return {**row, _FEATURES: features.swapaxes(0, 1)[None]}

    def change(rows: Rows, lengths: list[int]) -> Rows:
        rows = [aligned(row) for row in rows]
        for name in (_MASK, _FEATURES):
            rows = _with_zeros(rows, lengths, name, Hits())
        return rows

    def called(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        features = options.get(_FEATURES)
        if features is None or features.ndim != 4:
            return right(self, inputs, **options)
        hits.hit()
        del options[_FEATURES]
        mask = options.pop(_MASK)[..., None]
        layers = list(self.layers)
        for at, target in enumerate(self._deepstack_target_layers or ()):
            layers[target] = _adding(layers[target], mask, features[:, :, at])
        # A module keeps its layers as a dictionary does, out of reach of `replace`.
        own, self.layers = self.layers, layers
        try:
            return right(self, inputs, **options)
        finally:
            self.layers = own

    return together(_before_merge(change), wrap(language.Granite, "__call__", called))


def _adding(layer: Callable[..., Any], mask: mx.array, features: mx.array) -> Callable[..., Any]:
    """The layer, before which the features are added where the mask is set."""

    def called(hidden: mx.array, *args: Any, **options: Any) -> Any:
        return layer(mx.where(mask, hidden + features, hidden), *args, **options)

    return called


def _before_merge(change: Callable[[Rows, list[int]], Rows]) -> Patch:
    """``change(rows, lengths)`` returns the requests' arguments before they are joined."""

    def merged(right: Right, rows: Rows, ids: Sequence[Any]) -> Any:
        return right(change(rows, [len(row) for row in ids]), ids)

    def mixed(right: Right, self: Any, sequences: Sequence[Any]) -> Any:
        rows = change([s[3] for s in sequences], [len(s[1]) for s in sequences])
        return right(self, [(*s[:3], row, *s[4:]) for s, row in zip(sequences, rows, strict=True)])

    return together(
        wrap(_ar, "_merge_prefill_prompt_kwargs", merged),
        wrap(_ar.BatchGenerator, "_build_mixed_prompt_batch", mixed),
    )


def _arrays(rows: Rows) -> Iterable[str]:
    """The names of the arguments that are arrays, except the embeddings."""
    names = dict.fromkeys(n for row in rows for n, v in row.items() if isinstance(v, mx.array))
    return [name for name in names if name != "inputs_embeds"]


def _fit(name: str, given: Iterable[tuple[mx.array | None, int]]) -> bool:
    """Whether the generator can join the rows' arrays."""
    found = [(value, length) for value, length in given if value is not None]
    if all(_ar._is_sequence_aligned_prompt_kwarg(name, v, length) for v, length in found):
        return True
    return len({value.shape[1:] for value, _ in found}) == 1


def _padded(value: mx.array, length: int, longest: int) -> mx.array:
    """The array with zeros on the left of each axis that is as long as the prompt."""
    axes = [
        (longest - length if axis and size == length else 0, 0)
        for axis, size in enumerate(value.shape)
    ]
    return mx.pad(value, axes)


def _with_zeros(rows: Rows, lengths: list[int], name: str, hits: Hits) -> Rows:
    """The rows, in which those without the argument have zeros of it for each of their tokens."""
    given = [row.get(name) for row in rows]
    sample = next((value for value in given if isinstance(value, mx.array)), None)
    if sample is None or all(value is not None for value in given):
        return rows
    hits.hit()
    return [
        row
        if value is not None
        else {**row, name: mx.zeros((1, length, *sample.shape[2:]), sample.dtype)}
        for row, value, length in zip(rows, given, lengths, strict=True)
    ]


def _places(mask: mx.array) -> mx.array:
    """Where a mask ``[rows, length]`` is set, in all rows counted through."""
    return mx.array(np.flatnonzero(np.array(mask)).astype(np.uint32))
