"""Positions that count the padding of a batch, or take one offset for all of its rows."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


@mend(
    "rope-deltas-of-padding",
    "rope-deltas-of-padding-far",
    "rope-deltas-of-padding-near",
    "rope-deltas-of-padding-threads",
    "rope-deltas-of-padding-threads-near",
    "rope-deltas-of-padding-one",
    "rope-deltas-of-padding-4-7",
    "rope-deltas-of-padding-sparse",
)
def deltas_are_of_the_tokens(hits: Hits) -> Patch:
    """Where the padding is cut off a row that was embedded with it, its rope delta is made anew."""

    def cut(found: Any, *_: Any) -> Any:
        for ids, given in zip(*found, strict=True):
            if given.get("rope_deltas") is None or given.get("position_ids") is None:
                continue
            right = given["position_ids"].max().reshape(1, 1) + 1 - len(ids)
            hits.hit_if((right != given["rope_deltas"]).any().item())
            given["rope_deltas"] = right.astype(given["rope_deltas"].dtype)
        return found

    return after(part("generate.ar"), "_unpad_batch_prompts", cut)


@mend("qwen3-5-text-positions-of-padding")
def positions_of_each_row(hits: Hits) -> Patch:
    """A row's positions begin at its own offset, which is negative in its padding."""
    decoder = part("models.qwen3_5.language").LanguageModel

    def call(right: Right, self: Any, inputs: mx.array, *args: Any, **options: Any) -> Any:
        cache = options.get("cache")
        offset = cache[self.model.fa_idx].offset if cache else 0
        if options.get("position_ids") is None and isinstance(offset, mx.array):
            hits.hit()
            rows = offset.reshape(-1, 1) + mx.arange(inputs.shape[1])
            deltas = options.get("rope_deltas")
            rows = rows if deltas is None else rows + deltas
            options["position_ids"] = mx.broadcast_to(rows, (3, *rows.shape))
        return right(self, inputs, *args, **options)

    return wrap(decoder, "__call__", call)


@mend("minicpmv4-6-positions-of-padding")
def plain_positions_are_handed_along(hits: Hits) -> Patch:
    """Each request has its own positions, which count its tokens, and no rope delta."""

    def embed(found: Any, self: Any, ids: mx.array, *_: Any, **given: Any) -> Any:
        hits.hit()
        mask = given.get("mask")
        kept = mx.ones_like(ids) if mask is None else mask.astype(mx.int32)
        rows = mx.maximum(mx.cumsum(kept, axis=-1) - 1, 0)
        found.position_ids = mx.broadcast_to(rows, (3, *rows.shape))
        found.rope_deltas = mx.zeros((len(rows), 1), mx.int32)
        self.language_model._position_ids = None
        return found

    return after(part("models.minicpmv4_6").Model, "get_input_embeddings", embed)


class _Hunyuan:
    """What hunyuan_vl is given for each call: the positions of every row, in four parts."""

    def __init__(self, hits: Hits) -> None:
        self._hits = hits
        self._positions: mx.array | None = None  # [rows, parts, tokens]

    def patch(self) -> Patch:
        language = part("models.hunyuan_vl.language")
        return together(
            wrap(part("models.hunyuan_vl").Model, "get_input_embeddings", self._embed),
            wrap(language.LanguageModel, "__call__", self._call),
            wrap(language.HunyuanModel, "__call__", self._decoder),
            wrap(language.HunyuanRotaryEmbedding, "__call__", self._table),
            # Attention takes positions in four parts only where this is 0.
            replace(language, "cache_position_offset", lambda _: 0),
        )

    def _embed(
        self, right: Right, model: Any, input_ids: mx.array, pixel_values: Any = None, **given: Any
    ) -> Any:
        found = right(model, input_ids, pixel_values, **given)
        mask = given.get("mask")
        masks: Any = (mx.ones_like(input_ids) if mask is None else mask).tolist()
        tokens: Any = input_ids.tolist()
        decoder, config = model.language_model, model.config
        decoder._position_ids = None
        rows = []
        for ids, row in zip(tokens, masks, strict=True):
            first, end = row.index(1), row[::-1].index(1)
            if len(tokens) == 1 and (made := given.get("position_ids")) is not None:
                # From the processor, because the model itself can place only one image of a prompt.
                own = made[0][:, first : len(ids) - end]
            else:
                own = decoder.get_xdrope_input_positions(
                    ids[first : len(ids) - end],
                    given.get("image_grid_thw"),
                    config.image_token_id,
                    config.vision_config.spatial_merge_size,
                )
            rows.append(mx.pad(own, [(0, 0), (first, end)]))
        # The generator pads and cuts what has this name by its second axis.
        found.pos_hw = mx.stack(rows).transpose(0, 2, 1)
        return found

    def _call(
        self,
        right: Right,
        model: Any,
        inputs: mx.array,
        *args: Any,
        pos_hw: mx.array | None = None,
        cache: Any = None,
        **options: Any,
    ) -> Any:
        self._hits.hit()
        length = inputs.shape[1]
        offset = cache[0].offset if cache and cache[0] is not None else mx.array(0)
        start = mx.array(offset).reshape(-1, 1)
        if pos_hw is None:
            parts = len(model.args.rope_scaling["xdrope_section"])
            rows = mx.broadcast_to(start + mx.arange(length), inputs.shape)
            made = mx.broadcast_to(rows[:, None], (len(rows), parts, length))
        else:
            # generate_step passes the whole prompt's with each piece.
            done: Any = start.max().item()
            first = done if pos_hw.shape[1] > length else 0
            made = pos_hw[:, first : first + length].transpose(0, 2, 1)
        self._positions = model._position_ids = made
        try:
            return right(model, inputs, *args, cache=cache, **options)
        finally:
            self._positions = model._position_ids = None

    def _decoder(self, right: Right, model: Any, *args: Any, **options: Any) -> Any:
        return right(model, *args, **{**options, "position_ids": self._positions})

    def _table(self, right: Right, rope: Any, x: mx.array, seq_len: int) -> Any:
        assert self._positions is not None
        top: Any = self._positions.max().item()
        return right(rope, x, max(seq_len, top + 1))


@mend(
    "hunyuan-vl-offset-of-first-row",
    "hunyuan-vl-position-of-longest-row",
    "hunyuan-vl-positions-of-another-prompt",
    "hunyuan-vl-positions-of-first-piece",
    single_stream=True,
)
def hunyuan_positions_of_each_row(hits: Hits) -> Patch:
    """Each request has its positions in four parts, and each row is rotated to its own ones."""
    return _Hunyuan(hits).patch()


@mend("hunyuan-vl-table-of-another-dtype", single_stream=True)
def hunyuan_has_cosines_in_the_dtype_that_asks(hits: Hits) -> Patch:
    """The table of cosines is made anew for another dtype, too."""

    def update(right: Right, rope: Any, seq_len: int, dtype: mx.Dtype) -> None:
        if rope._cos_cached is not None and rope._cos_cached.dtype != dtype:
            hits.hit()
            rope._cached_seq_len = 0
        right(rope, seq_len, dtype)

    rope = part("models.hunyuan_vl.language").HunyuanRotaryEmbedding
    return wrap(rope, "_update_cache", update)


def _language(family: str) -> Any:
    return part(f"models.{family}.language")


def _of_rows(offset: Any) -> bool:
    return isinstance(offset, mx.array) and offset.ndim > 0


def _rope_of_rows(hits: Hits, owner: Any) -> Patch:
    """A rope that takes a number: each row is rotated by its own."""

    def rotated(right: Right, self: Any, x: mx.array, offset: Any = 0) -> Any:
        if not _of_rows(offset):
            return right(self, x, offset)
        hits.hit()
        each: Any = offset.tolist()
        rows = [right(self, x[row : row + 1], of) for row, of in enumerate(each)]
        return mx.concatenate(rows)

    return wrap(owner, "__call__", rotated)


@mend("jina-vlm-rope-of-longest-row")
def jina_vlm_rotates_each_row(hits: Hits) -> Patch:
    """Each row is rotated by its own offset."""
    return _rope_of_rows(hits, _language("jina_vlm").RoPE)


@mend("offset-of-rows-as-one-number")
def offsets_are_of_rows(hits: Hits) -> Patch:
    """Positions, masks and rope's base come from each row's own offset."""
    return together(
        _rope_of_rows(hits, _language("internlm2").DynamicNTKScalingRoPE),
        _rope_of_rows(hits, _language("internlm3").DynamicNTKScalingRoPE),
        _gpt_bigcode(hits),
        _limite(hits),
    )


def _gpt_bigcode(hits: Hits) -> Patch:
    """Learned positions: those of padding are some that are there."""
    module = _language("gpt_bigcode")

    def model(
        right: Right, self: Any, inputs: mx.array, cache: Any = None, inputs_embeds: Any = None
    ) -> Any:
        if cache is None or not _of_rows(cache[0].offset):
            return right(self, inputs, cache, inputs_embeds)
        hits.hit()
        hidden = self.wte(inputs) if inputs_embeds is None else inputs_embeds
        positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        hidden = hidden + self.wpe(mx.clip(positions, 0, self.wpe.weight.shape[0] - 1))
        mask = module.create_attention_mask(hidden, cache[0])
        for layer, of_layer in zip(self.h, cache, strict=True):
            hidden = layer(hidden, mask, cache=of_layer)
        return self.ln_f(hidden)

    return wrap(module.GPTBigCodeModel, "__call__", model)


def _limite(hits: Hits) -> Patch:
    """The mask is the cache's; a window is of the query's token and as many before as it says."""
    module = _language("limite")
    call = threading.local()

    def model(
        right: Right, self: Any, inputs: mx.array, cache: Any = None, positions: Any = None
    ) -> Any:
        if positions is None and cache is not None and _of_rows(cache[0].offset):
            hits.hit()
            positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        return right(self, inputs, cache=cache, positions=positions)

    def attention(right: Right, self: Any, x: mx.array, *args: Any) -> Any:
        cache, window = args[-1], self.window
        if cache is not None and _of_rows(cache.offset):
            window = None if window is None else window + 1
            call.mask = cache.make_mask(x.shape[1], window_size=window)
        result = right(self, x, *args)
        call.mask = None  # otherwise memory outside of the caches grows with their length
        return result

    def mask(right: Right, columns: int, offset: Any, *args: Any) -> Any:
        return call.mask if _of_rows(offset) else right(columns, offset, *args)

    return together(
        wrap(module.LimiteModel, "__call__", model),
        wrap(module.Attention, "__call__", attention),
        wrap(module, "_causal_window_mask", mask),
    )


@mend("moondream3-log-of-padding")
def no_logarithm_of_padding(hits: Hits) -> Patch:
    """No logarithm is taken of the negative positions of padding."""
    tau = part("models.moondream3.language").Tau

    def scale(right: Right, self: Any, states: Any, positions: Any) -> Any:
        hits.hit_if(bool((positions < 0).any()))
        return right(self, states, mx.maximum(positions, 0))

    return wrap(tau, "__call__", scale)


@mend("moondream3-one-padded-row")
def one_row_has_its_own_offset(hits: Hits) -> Patch:
    """A padded row that is left alone goes on at its own offset, as rows of a batch do."""
    language = part("models.moondream3.language")
    right = language.cache_position_offset

    def position(cache: Any) -> int:
        offset: Any = getattr(cache, "offset", None)
        if not isinstance(offset, mx.array) or offset.size != 1:
            return int(right(cache))
        own: Any = offset.item()
        hits.hit_if(own != right(cache))
        return int(own)

    return replace(language, "cache_position_offset", position)


@mend("inkling-scaling-of-padding", "inkling-scaling-of-padding-joint")
def scaling_goes_by_the_rows_positions(hits: Hits) -> Patch:
    """Queries of a padded row are scaled by the row's own positions, and not by the columns."""
    language = part("models.inkling.language")
    layer = threading.local()

    def called(right: Right, self: Any, x: Any, cache: Any = None, conv_mask: Any = None) -> Any:
        padding = getattr(cache[0], "left_padding", None) if cache is not None else None
        layer.scale = None
        if self.log_floor is not None and isinstance(padding, mx.array) and padding.any().item():
            layer.scale = self.log_floor, self.log_alpha, padding[:, None]
        return right(self, x, cache, conv_mask)

    def attend(right: Right, q: Any, k: Any, *args: Any, mask: Any, **options: Any) -> Any:
        if layer.scale is not None:
            floor, alpha, padding = layer.scale
            columns = mx.arange(k.shape[2] - q.shape[2], k.shape[2])[None] + 1
            own, common = (
                1 + alpha * mx.log(mx.maximum(positions / floor, 1))
                for positions in (columns - padding, columns)
            )
            ratio = (own / common)[:, None, :, None].astype(q.dtype)
            hits.hit_if(bool((ratio != 1).any()))
            q, mask = q * ratio, mx.where(mask > -1e29, mask * ratio, mask)
        return right(q, k, *args, mask=mask, **options)

    return together(
        wrap(language.InklingAttention, "__call__", called),
        wrap(language, "scaled_dot_product_attention", attend),
    )
