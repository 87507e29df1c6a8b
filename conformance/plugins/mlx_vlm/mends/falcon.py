"""Defects of falcon_ocr and falcon_perception: arguments and state of each row, and masks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx_vlm.models.base import create_attention_mask

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import batch_class, part, prompt_class
from conformance.plugins.mlx_vlm.mends.kept_positions import own_offset


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
    return plain_positions(hits, part("models.falcon_ocr.language").FalconOCRTransformerModel)


@mend("falcon-ocr-one-padded-row")
def one_row_of_falcon_ocr(hits: Hits) -> Patch:
    """A batch of one row goes on at that row's offset."""
    return wrap(part("models.falcon_ocr.language"), "cache_position_offset", own_offset(hits))


@mend("falcon-ocr-no-mask", single_stream=True)
def causal_without_a_cache(hits: Hits) -> Patch:
    """Without a cache there is a causal mask, too."""

    def call(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        if options.get("cache") is None and options.get("mask") is None:
            hits.hit()
            length = inputs.shape[1]
            options["mask"] = mx.tril(mx.ones((length, length), mx.bool_))
        return right(self, inputs, **options)

    return wrap(part("models.falcon_ocr.language").FalconOCRTransformerModel, "__call__", call)


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
        model = part(f"models.{self._family}").Model
        return together(
            replace(decoder, "chunked_prefill_policy", self._may_cut),
            # Asked before the decoder's, by generate_step alone, which still cuts nothing.
            replace(model, "chunked_prefill_policy", self._never),
        )

    @staticmethod
    def _never(_: Any = None, **__: Any) -> bool:
        return False

    @staticmethod
    def _may_cut(_: Any = None, **given: Any) -> bool:
        return "pos_hw" not in (given.get("prefill_kwargs") or {})

    def _embed(self, found: Any, model: Any, ids: mx.array, *_: Any, **__: Any) -> Any:
        # Two mends may have rows of their own at once.
        if found.pos_hw is not None and found.pos_hw.shape[-1] == 2:
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
        if cells is None or cells.shape[-1] == 2:
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


@mend(
    "falcon-perception-text-unmasked",
    "falcon-perception-no-mask",
    single_stream=True,
)
def texts_are_masked(hits: Hits) -> Patch:
    """Text has a causal mask that leaves out padding, and positions that do not count it."""
    decoder = part("models.falcon_perception.language").FalconPerceptionTransformerModel

    def call(right: Right, self: Any, inputs: mx.array, **options: Any) -> Any:
        if options.get("mask") is None:
            hits.hit()
            cache, embedded = options.get("cache"), options.get("inputs_embeds")
            embedded = self.embed_tokens(inputs) if embedded is None else embedded
            options["mask"] = create_attention_mask(embedded, cache, return_array=True)
        return right(self, inputs, **options)

    return together(plain_positions(hits, decoder), wrap(decoder, "__call__", call))


class _PerceptionRows(Rows):
    """As falcon_ocr's, of a model that keeps them, and takes no rope deltas."""

    def _embed(self, found: Any, model: Any, ids: mx.array, *args: Any, **given: Any) -> Any:
        kept = model.language_model
        if found.rope_deltas is not None:  # by the other mend
            return found
        # Also for texts: a batch has them for all its rows or for none.
        found.rope_deltas = mx.zeros((len(ids), 1), mx.int32)
        if kept._position_ids is not None:
            found.position_ids, found.pos_hw = kept._position_ids[None], kept._pos_hw
            found.rope_deltas = mx.array([[kept._rope_delta]])
        kept._position_ids = kept._pos_hw = kept._full_attn_mask = kept._rope_delta = None
        return super()._embed(found, model, ids, *args, **given)

    def _deltas(self, model: Any, length: int, options: dict[str, Any]) -> None:
        """In decode steps rows count on from their own offset and delta."""
        deltas = options.get("rope_deltas")
        offset: Any = options["cache"][0].offset if options.get("cache") else 0
        alone = not isinstance(offset, mx.array)
        if deltas is not None:
            found: Any = deltas.reshape(-1)[0].item()
            model._rope_delta = found if alone else None
        if deltas is not None and not alone and length == 1:
            self._given = {"position_ids": mx.maximum(offset.reshape(-1, 1) + deltas, 0)}


@mend("falcon-perception-state-of-last-request")
def requests_hand_their_state_along(hits: Hits) -> Patch:
    """Every row hands its positions, cells, delta and images along, and the model keeps none."""
    return _PerceptionRows(hits, "falcon_perception", "FalconPerceptionTransformerModel").patch()


@mend("falcon-perception-images-are-cut", other_pieces=True)
def images_of_falcon_perception_are_whole(hits: Hits) -> Patch:
    """A prompt with an image is prefilled as a whole, and every row hands its state along."""
    rows = _PerceptionRows(hits, "falcon_perception", "FalconPerceptionTransformerModel")
    return together(rows.patch(), rows.whole())


@dataclass
class _Box:
    """The result of a row's last step about a box, and the boxes found before.

    An open box is kept as numbers, because arrays would count as growth of a long answer.
    """

    corner: mx.array | None = None
    size: mx.array | None = None
    place: list[float] = field(default_factory=list)
    open: dict[str, list[float]] = field(default_factory=dict)
    corners: list[list[float]] = field(default_factory=list)

    def embed(self, model: Any, token: int, plain: mx.array) -> mx.array:
        """The embedding ``[1, 1, width]`` of the row's next token, which may be of a box."""
        config, given = model._perception_config, plain
        if token == config.coord_token_id and self.corner is not None:
            self.open["corner"] = self.place
            given = model._coord_encoder(self.corner).reshape(1, 1, -1)
        elif token == config.size_token_id and self.size is not None:
            self.open["size"] = []
            given = model._size_encoder(self.size).reshape(1, 1, -1)
        elif token == config.seg_token_id:
            if len(self.open) == 2:
                self.corners.append(self.open["corner"])
            self.open = {}
        return given

    def note(self, model: Any, hidden: mx.array) -> None:
        """Take the corner and the size from the row's last hidden state ``[1, width]``."""
        found = model._coord_decoder(hidden).reshape(2, -1)
        bins = found.shape[-1]
        for _ in range(100):
            best = mx.argmax(found, axis=-1)
            places: Any = best.tolist()
            corner = [place / (bins - 1) for place in places]
            x, y = corner
            if not any(abs(a - x) < 0.01 and abs(b - y) < 0.01 for a, b in self.corners):
                break
            found = found.at[mx.array([0, 1]), best].add(-1e9)
        self.place, self.corner = corner, mx.array([corner])
        sizes = model._size_decoder(hidden).reshape(-1, 2, bins)
        least = math.log2(1.0 / sizes.shape[-1])
        picked = mx.argmax(sizes, axis=-1).astype(mx.float32) / (sizes.shape[-1] - 1)
        self.size = 2.0 ** (picked * (0.0 - least) + least)


class _Boxes:
    """The boxes of every request of the generator."""

    def __init__(self, hits: Hits) -> None:
        self._hits = hits
        self._boxes: dict[int, _Box] = {}
        self._rows: list[int] = []
        # After how many columns of the next call each row's prompt ends; empty: with the call.
        self._ends: list[int] = []

    def patch(self) -> Patch:
        prompts = prompt_class()
        steps = [(batch_class(), "_step"), (prompts, "prompt_step"), (prompts, "generate")]
        return together(
            *(wrap(owner, name, self._of_rows) for owner, name in steps),
            wrap(part("models.falcon_perception.language").LanguageModel, "__call__", self._call),
        )

    def _of_rows(self, right: Right, batch: Any, *args: Any, **options: Any) -> Any:
        self._rows, self._ends = list(batch.uids), []
        if getattr(batch, "_right_pad_per_row", None) is not None:
            self._ends = [n - batch._processed_prompt_columns for n in batch._suffix_lens]
        elif right.__name__ == "prompt_step":
            self._ends = [0] * len(self._rows)
        try:
            return right(batch, *args, **options)
        finally:
            self._rows = []

    def _call(self, right: Right, model: Any, inputs: mx.array, *args: Any, **options: Any) -> Any:
        if not self._rows:
            return right(model, inputs, *args, **options)
        boxes = [self._boxes.setdefault(uid, _Box()) for uid in self._rows]
        if options.get("inputs_embeds") is None:
            self._hits.hit()
            tokens: Any = inputs.reshape(-1).tolist()
            plain = model.model.embed_tokens(inputs)
            rows = [
                box.embed(model, token, plain[row : row + 1])
                for row, (box, token) in enumerate(zip(boxes, tokens, strict=True))
            ]
            options["inputs_embeds"] = mx.concatenate(rows)
        found = right(model, inputs, *args, **options)
        hidden = model.model._last_hidden_state[:, -1]
        for row, box in enumerate(boxes):
            if self._ends and self._ends[row] != inputs.shape[1]:
                continue
            box.note(model, hidden[row : row + 1])
        return found


@mend("falcon-perception-boxes-of-row-0")
def boxes_of_every_row(hits: Hits) -> Patch:
    """Every row has a corner, a size and found boxes of its own."""
    return _Boxes(hits).patch()
