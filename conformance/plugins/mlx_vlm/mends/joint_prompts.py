"""Defects of `batch_generate`, which processes and embeds several prompts at once."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.core.mends import mend

_utils: Any = importlib.import_module("mlx_vlm.utils")
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
        features: Any = importlib.import_module("mlx_vlm.models.base").InputEmbeddingsFeatures
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
    tower = importlib.import_module("mlx_vlm.models.mllama.vision").VisionModel

    def called(made: mx.array, *_: Any, **__: Any) -> tuple[mx.array]:
        hits.hit_if(len(made) > 1)
        return (made,)

    return after(tower, "__call__", called)


def _molmo(hits: Hits) -> Patch:
    """Its processor gives the crops of all images in one list, and no mask of the padding."""
    processing = importlib.import_module("mlx_vlm.models.molmo.processing_molmo")

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
    processing = importlib.import_module("mlx_vlm.models.paddleocr_vl.processing_paddleocr_vl")

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
    return importlib.import_module(f"mlx_vlm.models.{module}").Model
