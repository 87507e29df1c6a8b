"""Defects of falcon_ocr: the arguments of each row, and masks."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.base import create_attention_mask

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.plugins.mlx_vlm.mends.kept_positions import own_offset


def _ocr() -> Any:
    return part("models.falcon_ocr.language")


def plain_positions(hits: Hits, decoder: Any) -> Patch:
    """Rows without positions of their own count their tokens: the sum is raised to 0."""

    def call(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        cache = options.get("cache")
        offset = cache[0].offset if cache and cache[0] is not None else 0
        if options.get("position_ids") is None and isinstance(offset, mx.array):
            hits.hit()
            rows = offset.reshape(-1, 1) + mx.arange(inputs.shape[1])
            options["position_ids"] = mx.maximum(rows, 0)
        return right(self, inputs, **options)

    return wrap(decoder, "__call__", call)


@mend("falcon-ocr-positions-of-padding", "falcon-ocr-positions-of-padding-joint")
def positions_are_raised_with_columns(hits: Hits) -> Patch:
    """Negative positions are raised to 0, and no offsets before columns are added to them."""
    return plain_positions(hits, _ocr().FalconOCRTransformerModel)


@mend("falcon-ocr-one-padded-row")
def one_row_of_falcon_ocr(hits: Hits) -> Patch:
    """A batch of one row goes on at that row's offset."""
    return wrap(_ocr(), "cache_position_offset", own_offset(hits))


@mend("falcon-ocr-no-mask", single_stream=True)
def causal_without_a_cache(hits: Hits) -> Patch:
    """Without a cache there is a causal mask, too."""

    def call(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        if options.get("cache") is None and options.get("mask") is None:
            hits.hit()
            length = inputs.shape[1]
            options["mask"] = mx.tril(mx.ones((length, length), mx.bool_))
        return right(self, inputs, **options)

    return wrap(_ocr().FalconOCRTransformerModel, "__call__", call)


class Rows:
    """The arguments of each row of a call: positions, cells, and the image of each token.

    Args:
        family: of falcon_ocr's kind.
        decoder: the name of the class below its language model.
    """

    def __init__(self, hits: Hits, family: str, decoder: str) -> None:
        self._hits = hits
        self._family, self._name = family, decoder
        self._given: dict[str, mx.array] = {}

    def patch(self) -> Patch:
        """Each row is given its own."""
        language = part(f"models.{self._family}.language")
        return together(
            after(part(f"models.{self._family}").Model, "get_input_embeddings", self._embed),
            wrap(part("generate.ar"), "_merge_prefill_prompt_kwargs", self._merge),
            wrap(language.LanguageModel, "__call__", self._call),
            wrap(getattr(language, self._name), "__call__", self._decoder),
        )

    def whole(self) -> Patch:
        """What has an image is not cut: no part of an image can see the rest of it."""
        decoder = part(f"models.{self._family}.language").LanguageModel
        return replace(decoder, "chunked_prefill_policy", self._may_cut)

    @staticmethod
    def _may_cut(_: Any = None, **given: Any) -> bool:
        return "pos_hw" not in (given.get("prefill_kwargs") or {})

    def _embed(self, found: Any, model: Any, ids: mx.array, *_: Any, **__: Any) -> Any:
        if found.pos_hw is not None:
            config = model.config
            begun = mx.cumsum((ids == config.image_cls_token_id).astype(mx.int32), axis=-1)
            ended = mx.cumsum((ids == config.img_end_id).astype(mx.int32), axis=-1)
            image = mx.where(begun > ended, begun, 0)[..., None]
            # The generator pads and cuts it together with the cells.
            found.pos_hw = mx.concatenate([found.pos_hw, image.astype(mx.float32)], axis=-1)
            found.attention_mask_4d = None
        return found

    def _merge(self, right: Right, rows: list[Any], ids: list[list[int]]) -> Any:
        """Beside an image, texts hand along their own positions, no cells and no delta."""
        if any("pos_hw" in row for row in rows):
            plain = [
                {
                    "position_ids": mx.arange(len(own))[None],
                    "pos_hw": mx.zeros((1, len(own), 3)),
                    "rope_deltas": mx.zeros((1, 1), mx.int32),
                }
                for own in ids
            ]
            rows = [{**text, **row} for text, row in zip(plain, rows, strict=True)]
        return right(rows, ids)

    def _call(
        self,
        right: Right,
        model: Any,
        inputs: mx.array,
        *args: Any,
        position_ids: mx.array | None = None,
        pos_hw: mx.array | None = None,
        **options: Any,
    ) -> Any:
        self._given, length = {}, inputs.shape[1]
        if position_ids is not None and pos_hw is not None:
            self._hits.hit()
            # generate_step passes the whole prompt's with each piece.
            start = options["cache"][0].offset if position_ids.shape[1] > length else 0
            piece = slice(start, start + length)
            self._given = {"position_ids": position_ids[:, piece], "pos_hw": pos_hw[:, piece]}
        self._deltas(model, length, options)
        return right(model, inputs, *args, **options)

    def _deltas(self, model: Any, _: int, options: dict[str, Any]) -> None:
        """A prefill of texts that hands no rope deltas along has none, whatever was before."""
        if options.get("inputs_embeds") is not None and options.get("rope_deltas") is None:
            model._rope_deltas = None

    def _decoder(self, right: Right, model: Any, inputs: mx.array, **options: Any) -> Any:
        options |= self._given
        cells = options.get("pos_hw")
        if cells is None:
            return right(model, inputs, **options)
        image, options["pos_hw"] = cells[..., 2], cells[..., :2]
        mask = create_attention_mask(options["inputs_embeds"], options["cache"], return_array=True)
        if isinstance(mask, mx.array):
            same = (image[:, :, None] == image[:, None]) & (image[:, None] > 0)
            before = mask.shape[-1] - same.shape[-1]
            options["mask"] = mask | mx.pad(same, [(0, 0), (0, 0), (before, 0)])[:, None]
        return right(model, inputs, **options)


@mend("falcon-ocr-positions-cut-twice", "falcon-ocr-arguments-of-some-rows")
def rows_have_arguments_of_their_own(hits: Hits) -> Patch:
    """Every row hands its positions, cells and images along, which are cut once."""
    return Rows(hits, "falcon_ocr", "FalconOCRTransformerModel").patch()


@mend("falcon-ocr-images-are-cut", other_pieces=True)
def images_of_falcon_ocr_are_whole(hits: Hits) -> Patch:
    """A prompt with an image is prefilled as a whole, and every row has its own arguments."""
    rows = Rows(hits, "falcon_ocr", "FalconOCRTransformerModel")
    return together(rows.patch(), rows.whole())
