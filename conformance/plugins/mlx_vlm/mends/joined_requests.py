"""Several prompts as one: how they are processed, embedded and joined for one prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap, wrap_each
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.library_parts import part

_utils: Any = part("utils")
# Models that embed all their inputs as one prompt.
_ONE_PROMPT = ("granite4_vision", "granite_vision", "llava_next", "paligemma")


@mend("joint-images-of-first-prompt", "joint-images-refused")
def each_prompt_has_its_images(hits: Hits) -> Patch:
    """The processor is given a list of images for each prompt."""

    def process(
        right: Right, processor: Any, prompts: Any = None, images: Any = None, **kw: Any
    ) -> Any:
        if isinstance(prompts, list) and len(prompts) == len(images or ()) > 1:
            hits.hit()
            images = [[image] for image in images]
        return right(processor, prompts=prompts, images=images, **kw)

    return wrap(_utils, "process_inputs_with_fallback", process)


@mend("joint-prompts-not-padded")
def prompts_are_padded(hits: Hits) -> Patch:
    """Prompts of other lengths are padded by the tokenizer, as the library asks for."""

    def padded(made: Any, *_: Any, **__: Any) -> Any:
        rows = made["input_ids"]
        if not isinstance(rows, list) or len({len(row) for row in rows}) == 1:
            return made
        hits.hit()
        longest = max(map(len, rows))
        for name in ("input_ids", "attention_mask"):
            made[name] = mx.array([[0] * (longest - len(row)) + list(row) for row in made[name]])
        return made

    return after(_utils, "process_inputs_with_fallback", padded)


@mend("joint-images-in-every-row", "joint-images-do-not-fit")
def images_go_to_their_row(hits: Hits) -> Patch:
    """The features of each image go to its own prompt's row, where the image's tokens are."""

    def in_one_row(
        right: Right,
        self: Any,
        features: Any,
        embeds: mx.array,
        ids: mx.array,
        *args: Any,
        **kw: Any,
    ) -> Any:
        rows, length = ids.shape
        if rows == 1:
            return right(self, features, embeds, ids, *args, **kw)
        hits.hit()
        flat = embeds.reshape(1, rows * length, -1)
        found = right(self, features, flat, ids.reshape(1, -1), *args, **kw)
        return found.reshape(rows, length, -1)

    merges = ("_merge_input_ids_with_image_features", "_prepare_inputs_for_multimodal")
    return together(
        wrap(_model("aya_vision.aya_vision"), merges[0], in_one_row),
        wrap(_model("internvl_chat.internvl_chat"), merges[0], in_one_row),
        wrap(_model("kimi_k25.kimi_k25"), merges[1], in_one_row),
        _internvl(hits),
        _mllama(hits),
        _molmo(hits),
        *(_row_by_row(hits, _model(f"{name}.{name}")) for name in _ONE_PROMPT),
    )


def _row_by_row(hits: Hits, model: Any) -> Patch:
    """The model takes all images and tokens for those of one prompt: it is given one at a time."""

    def embed(
        right: Right, self: Any, input_ids: mx.array, pixel_values: Any = None, **kw: Any
    ) -> Any:
        rows, mask = len(input_ids), kw.get("mask")
        if pixel_values is None or rows == 1 or mask is None:
            return right(self, input_ids, pixel_values, **kw)
        hits.hit()
        made, pads = [], []
        for row in range(rows):
            tokens = np.flatnonzero(np.array(mask[row]))
            start, stop = int(tokens[0]), int(tokens[-1]) + 1
            own = {name: _row(value, row, rows) for name, value in kw.items()}
            ids, own["mask"] = input_ids[row : row + 1, start:stop], own["mask"][:, start:stop]
            made.append(right(self, ids, _row(pixel_values, row, rows), **own).to_dict())
            pads.append((start, input_ids.shape[1] - stop))
        features: Any = part("models.base").InputEmbeddingsFeatures
        return features(
            inputs_embeds=_stacked([row["inputs_embeds"] for row in made], pads),
            **{
                name: _stacked([_of_tokens(row[name]) for row in made], pads)
                for name in _DEEP
                if made[0][name] is not None
            },
        )

    return wrap(model, "get_input_embeddings", embed)


_DEEP = ("visual_pos_masks", "deepstack_visual_embeds")


def _row(value: Any, row: int, rows: int) -> Any:
    """The part of an argument that is about one prompt."""
    whole = isinstance(value, (mx.array, list)) and len(value) == rows
    return value[row : row + 1] if whole else value


def _of_tokens(value: mx.array) -> mx.array:
    """Features ``[layers, length, width]`` as ``[1, length, layers, width]``; masks as they are."""
    return value if value.ndim == 2 else value.swapaxes(0, 1)[None]


def _stacked(rows: list[mx.array], pads: list[tuple[int, int]]) -> mx.array:
    """Rows of different lengths in one array, with the padding of their prompts."""
    padded = [
        mx.pad(row, [(0, 0), pad, *[(0, 0)] * (row.ndim - 2)])
        for row, pad in zip(rows, pads, strict=True)
    ]
    return mx.concatenate(padded)


def _internvl(hits: Hits) -> Patch:
    """It counts the image tokens of all rows as those of one."""

    def embed(
        right: Right, self: Any, input_ids: mx.array, pixel_values: Any = None, **kw: Any
    ) -> Any:
        rows, length = input_ids.shape
        if pixel_values is None or rows == 1:
            return right(self, input_ids, pixel_values, **kw)
        hits.hit()
        made = right(self, input_ids.reshape(1, -1), pixel_values, **kw)
        made.inputs_embeds = made.inputs_embeds.reshape(rows, length, -1)
        return made

    return wrap(_model("internvl.internvl"), "get_input_embeddings", embed)


def _mllama(hits: Hits) -> Patch:
    """It takes the first image's features for all that its vision tower gives."""
    tower = part("models.mllama.vision").VisionModel

    def called(made: mx.array, *_: Any, **__: Any) -> tuple[mx.array]:
        hits.hit_if(len(made) > 1)
        return (made,)

    return after(tower, "__call__", called)


def _molmo(hits: Hits) -> Patch:
    """Its processor gives the crops of all images in one list, and no mask of the padding."""
    processing = part("models.molmo.processing_molmo")

    def embed(right: Right, self: Any, input_ids: Any, pixel_values: Any, **kw: Any) -> Any:
        rows = len(input_ids)
        if pixel_values is None or rows == 1 or pixel_values.ndim != 3:
            return right(self, input_ids, pixel_values, **kw)
        hits.hit()
        split = {n: kw[n].reshape(rows, -1, *kw[n].shape[1:]) for n in _CROPS if n in kw}
        pixels = pixel_values.reshape(rows, -1, *pixel_values.shape[1:])
        return right(self, input_ids, pixels, **{**kw, **split})

    def process(made: Any, self: Any, *_: Any, text: Any = None, **__: Any) -> Any:
        if isinstance(text, list) and len(text) > 1:
            lengths = [len(self.tokenizer.encode(one)) for one in text]
            columns = np.arange(made["input_ids"].shape[1])
            ends = [len(columns) - max(lengths) + length for length in lengths]
            made["attention_mask"] = mx.array(np.array([columns < end for end in ends]), mx.int32)
        return made

    return together(
        wrap(_model("molmo.molmo"), "get_input_embeddings", embed),
        after(processing.MolmoProcessor, "__call__", process),
    )


_CROPS = ("image_masks", "image_input_idx")


@mend("paddleocr-vl-several-images")
def each_image_has_a_grid(hits: Hits) -> Patch:
    """Each image of a call has patches and a grid of its own."""
    processing = part("models.paddleocr_vl.processing_paddleocr_vl")

    def process(right: Right, self: Any, images: Any, *args: Any, **kw: Any) -> Any:
        if not isinstance(images, (list, tuple)) or len(images) < 2:
            return right(self, images, *args, **kw)
        hits.hit()
        made = [right(self, [image], *args, **kw) for image in images]
        whole = made[0]
        for name, axis in (("pixel_values", 1), ("image_grid_thw", 0)):
            whole[name] = np.concatenate([np.array(one[name]) for one in made], axis=axis)
        return whole

    return wrap(processing.ImageProcessor, "preprocess", process)


def _model(module: str) -> Any:
    return part(f"models.{module}").Model


_ar: Any = part("generate.ar")
_FEATURES = "deepstack_visual_embeds"
_MASK = "visual_pos_masks"
# Arguments of the language model about each token; zero for text.
_KINDS = (_MASK, "mm_token_type_ids", "token_type_ids")
# What embedding gives, all of which the language model may need; the rest is the processor's.
_EMBEDDED = frozenset(part("models.base").InputEmbeddingsFeatures.__dataclass_fields__)

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
        part("models.qwen3_vl.language").Qwen3VLModel,
        (part("models.qwen3_vl_moe.language").Qwen3VLMoEModel),
    )
    return together(_before_merge(change), wrap_each(models, "__call__", called))


@mend("granite4-vision-features-by-offset", "granite4-vision-features-by-offset-joint")
def features_are_cut_by_the_generator(hits: Hits) -> Patch:
    """Deep features and their mask are padded and cut with the tokens they belong to."""
    language = part("models.granite4_vision.language")

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


@mend(
    "embeddings-longer-than-prompt",
    "embeddings-longer-than-prompt-quantized",
    "longer-embeddings-kept",
    other_pieces=True,  # pieces that end within an image are not counted in its one token
)
def rows_are_padded_by_their_embeddings(hits: Hits) -> Patch:
    """A row is as long as its embeddings, and so is what is left of it after a reused prefix."""
    module = compat.generation()
    # Of the prompts that were merged last: their ids, and the numbers of their embeddings.
    merged: list[tuple[list[int], int]] = []

    def lengthened(prompts: Sequence[list[int]], given: Sequence[Any]) -> list[list[int]]:
        sizes = [(one or {})["inputs_embeds"].shape[1] for one in given]
        merged[:] = zip(map(list, prompts), sizes, strict=True)
        return [_lengthened(*row) for row in merged]

    def merge(right: Right, given: list[Any], ids: list[list[int]]) -> Any:
        return right(given, lengthened(ids, given))

    def mixed(right: Right, self: Any, sequences: list[Any]) -> Any:
        if self.apc_manager is None:
            return None
        made = lengthened([each[1] for each in sequences], [each[3] for each in sequences])
        rows = [(uid, ids, *more) for (uid, _, *more), ids in zip(sequences, made, strict=True)]
        try:
            return right(self, rows)
        finally:
            merged.clear()

    def init(right: Right, self: Any, *args: Any, input_ids: Any, **options: Any) -> None:
        rows, merged[:] = [*merged], ()
        if len(rows) != len(input_ids) or all(len(ids) == size for ids, size in rows):
            right(self, *args, input_ids=input_ids, **options)
            return
        hits.hit()
        sizes = [len(ids) for ids, _ in rows]
        if options.get("right_pad_per_row") is None:
            # The progress of a prompt is counted in its ids.
            options["suffix_lens"] = sizes
            input_ids = [_lengthened(*row) for row in rows]
        for kept, (ids, _) in zip(options["apc_meta"] or (), rows, strict=False):
            kept["full_input_ids"] = ids
        right(self, *args, input_ids=input_ids, **options)
        self._prompt_tokens_per_row = [*sizes]  # a row that is removed leaves each list
        reused = self._cached_tokens_per_row
        self._token_context = [
            ids if len(context) > len(own) else ids[start:]
            for context, own, (ids, _), start in zip(
                self._token_context, input_ids, rows, reused, strict=False
            )
        ]

    return together(
        wrap(module, "_merge_prefill_prompt_kwargs", merge),
        wrap(module.BatchGenerator, "_build_mixed_prompt_batch", mixed),
        wrap(module.PromptProcessingBatch, "__init__", init),
    )


@mend("embeddings-longer-than-prompt-joint")
def padding_is_cut_off_embeddings(hits: Hits) -> Patch:
    """The padding that prompts were embedded with is cut off their embeddings as off their ids."""
    module = compat.generation()
    rows = rows_are_padded_by_their_embeddings.repair(hits)

    def unpad(right: Right, prompts: Any, mask: Any, given: list[dict[str, Any]]) -> Any:
        ids, given = right(prompts, mask, given)
        if mask is None:
            return ids, given
        width = mask.shape[1]
        for row, one in zip(mask.tolist(), given, strict=True):
            embeds = one.get("inputs_embeds")
            if embeds is None or embeds.shape[1] <= width or all(row):
                continue
            hits.hit()
            after = row[::-1].index(1)
            one["inputs_embeds"] = embeds[:, row.index(1) : embeds.shape[1] - after]
        return ids, given

    return together(rows, wrap(module, "_unpad_batch_prompts", unpad))


@mend("multi-modality-embeds-one-row")
def each_prompt_is_embedded_alone(hits: Hits) -> Patch:
    """Of several prompts each is embedded with its own image, where its own image token is."""
    model = part("models.multi_modality.multi_modality").Model

    def embed(right: Right, self: Any, ids: mx.array, pixels: Any = None, **options: Any) -> Any:
        if pixels is None or len(ids) == 1:
            return right(self, ids, pixels, **options)
        hits.hit()
        rows = [right(self, ids[i : i + 1], pixels[i : i + 1]) for i in range(len(ids))]
        rows[0].inputs_embeds = mx.concatenate([row.inputs_embeds for row in rows])
        return rows[0]

    return wrap(model, "get_input_embeddings", embed)


def _lengthened(ids: list[int], size: int) -> list[int]:
    """As many ids as there are embeddings, beside which ids are not read."""
    return [*ids, *[0] * (size - len(ids))][:size]


@mend(
    "llava-next-newline-in-bfloat16",
    "llava-next-newline-in-bfloat16-joint",
    single_stream=True,
)
def newlines_stay_in_mlx(hits: Hits) -> Patch:
    """The newline of images is made an array in a dtype that NumPy has."""

    def embed(right: Right, model: Any, *args: Any, **options: Any) -> Any:
        newline = model.image_newline
        hits.hit_if(newline.dtype == mx.bfloat16)
        model.image_newline = newline.astype(mx.float32)
        try:
            return right(model, *args, **options)
        finally:
            model.image_newline = newline

    return wrap(part("models.llava_next").Model, "get_input_embeddings", embed)


@mend("llava-next-text-between-images", single_stream=True)
def tokens_without_a_tile_go(hits: Hits) -> Patch:
    """Image tokens beyond the tiles are taken out before, so that no text ends with the tiles."""

    def merge(right: Right, model: Any, features: mx.array, embeds: mx.array, ids: mx.array) -> Any:
        tokens: list[int] = np.array(ids[0]).tolist()
        images = [at for at, t in enumerate(tokens) if t == model.config.image_token_index]
        beyond = set(images[len(features) :])
        if not beyond:
            return right(model, features, embeds, ids)
        hits.hit()
        kept = mx.array([at for at in range(len(tokens)) if at not in beyond])
        return right(model, features, embeds[:, kept], ids[:, kept])

    model = part("models.llava_next.llava_next").Model
    return wrap(model, "_merge_input_ids_with_image_features", merge)
