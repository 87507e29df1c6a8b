"""Prompts with more embeddings than ids: models put many in place of one image token."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.library_parts import part


@mend(
    "embeddings-longer-than-prompt",
    "embeddings-longer-than-prompt-quantized",
    other_pieces=True,  # pieces that end within an image are not counted in its one token
)
def rows_are_padded_by_their_embeddings(hits: Hits) -> Patch:
    """A row is as long as its embeddings, and is padded by what they lack to the longest row's."""
    module = compat.generation()
    # Of the prompts that were merged last: the numbers of their embeddings.
    merged: list[int] = []

    def merge(right: Right, given: list[Any], ids: list[list[int]]) -> Any:
        merged[:] = [one["inputs_embeds"].shape[1] for one in given]
        return right(given, _lengthened(ids, merged))

    def init(right: Right, self: Any, *args: Any, input_ids: Any, **options: Any) -> None:
        lengths = [*map(len, input_ids)]
        if len(merged) == len(lengths) and merged != lengths:
            hits.hit()
            # The progress of a prompt is counted in its ids.
            options["suffix_lens"] = lengths
            input_ids = _lengthened(input_ids, merged)
        merged.clear()
        right(self, *args, input_ids=input_ids, **options)

    return together(
        wrap(module, "_merge_prefill_prompt_kwargs", merge),
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
    model = importlib.import_module("mlx_vlm.models.multi_modality.multi_modality").Model

    def embed(right: Right, self: Any, ids: mx.array, pixels: Any = None, **options: Any) -> Any:
        if pixels is None or len(ids) == 1:
            return right(self, ids, pixels, **options)
        hits.hit()
        rows = [right(self, ids[i : i + 1], pixels[i : i + 1]) for i in range(len(ids))]
        rows[0].inputs_embeds = mx.concatenate([row.inputs_embeds for row in rows])
        return rows[0]

    return wrap(model, "get_input_embeddings", embed)


def _lengthened(ids: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """Add an id for each embedding; with embeddings, ids are not read."""
    return [([0] * n + list(row))[-n:] for row, n in zip(ids, lengths, strict=True)]


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
