"""Attention: masks, what is seen that should not be, and layers that attend to an image."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.plugins.mlx_vlm.library_parts import cache_class, part, prompt_class
from conformance.power.faults.mlx_vlm.embeddings import last_logits
from conformance.power.faults.mlx_vlm.tools import ARRAYS, ROTATING, mlx_vlm_fault
from conformance.power.faults.shared_faults import (
    ATTENTION_MODULE,
    RECURRENT_MODULE,
    differs,
    masked_with,
    padding_lost_where_lengths_meet,
)

_ENDLESS = 1 << 30
_PADDING = "cache:*:left_padding"
_mask = partial(mlx_vlm_fault, source="mlx-vlm #1030", kills=("ragged",), where=ATTENTION_MODULE)
_full = partial(_mask, needs=("cache:KVCache|cache:SimpleKVCache|cache:ChunkedKVCache",))
_fill = partial(_mask, fault_class="mask fill", source="a Swift engine's fork")


@_full("B6.padding-mask-vanishes", fault_class="mask ignored")
def padding_mask_vanishes(hits: Hits) -> Patch:
    """The mask is made without a cache: only causal, padding is seen."""

    def causal(mask: mx.array, cache: Any, n: int, *_: Any, **__: Any) -> mx.array:
        whole = part("models.cache").create_causal_mask(n, offset=cache._idx)
        wrong = mx.broadcast_to(whole, mask.shape)
        hits.hit_if(differs(wrong, mask))
        return wrong

    return after(cache_class("BatchKVCache"), "make_mask", causal)


@_full("B5.mask-cut-to-the-chunk", fault_class="mask misalignment")
def mask_cut_to_the_chunk(hits: Hits) -> Patch:
    """The mask covers the new chunk only, padding before it is seen."""

    def new_columns(mask: mx.array, _: Any, n: int, *__: Any, **___: Any) -> mx.array:
        wrong = mask | (mx.arange(mask.shape[-1]) < mask.shape[-1] - n)
        hits.hit_if(differs(wrong, mask))
        return wrong

    return after(cache_class("BatchKVCache"), "make_mask", new_columns)


@_full(
    "B6.padding-as-it-was-seen-first",
    fault_class="mask ignored",
    kills=("prefix_caching/forks",),
    # Caches of several kinds are kept whole, as snapshots.
    needs=("only:KVCache",),
    source="mlx-vlm 0.7.3, models/qwen3_5/language.py:161: an array that is changed in place",
)
def padding_as_it_was_seen_first(hits: Hits) -> Patch:
    """The padding is looked up by its array, as it was when that array was seen first."""

    def make_mask(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        true = self.left_padding
        seen = getattr(self, "_padding_seen", None)
        if seen is None or seen[0] is not true:
            seen = self._padding_seen = (true, mx.array(true))
        hits.hit_if(differs(seen[1], true))
        with replace(self, "left_padding", seen[1]):
            return right(self, *args, **options)

    return wrap(cache_class("BatchKVCache"), "make_mask", make_mask)


# No key depends on the mask of a last layer; its last token sees what the cache holds.
@_mask(
    "B15.mask-without-window",
    fault_class="mask misalignment",
    kills=("window",),
    needs=("window", "inner:RotatingKVCache"),
)
def mask_without_window(hits: Hits) -> Patch:
    """Sliding layers are given the mask of full ones."""

    def make_mask(right: Right, self: Any, count: int, **options: Any) -> Any:
        true = right(self, count, **options)
        wrong = right(self, count, **{**options, "window_size": _ENDLESS})
        hits.hit_if((true != wrong).any().item())
        return wrong

    return wrap(cache_class("BatchRotatingKVCache"), "make_mask", make_mask)


def _uncounted_join(kind: str, hits: Hits) -> Patch:
    """The columns that a shorter batch is given when it joins are not counted as its padding."""

    def extend(right: Right, self: Any, other: Any) -> None:
        known = mx.concatenate([self.left_padding, other.left_padding])
        right(self, other)
        self.uncounted = bool((known != self.left_padding).any().item())
        self.left_padding = known

    def effect(cache: Any, *_: Any, **__: Any) -> None:
        # Some models make no mask of a cache: they note themselves which columns are tokens.
        hits.hit_if(getattr(cache, "uncounted", False))

    owner = cache_class(kind)
    return together(wrap(owner, "extend", extend), before(owner, "make_mask", effect))


# In other schedules of `staggered` who would attend to them has its last token already.
@_full(
    "B18.padding-of-a-join-seen",
    fault_class="mask ignored",
    kills=("staggered/short_into_long", "mixed_modality"),
    where=_PADDING,
)
def padding_of_a_join_seen(hits: Hits) -> Patch:
    """A short row that joins a long one attends to the zeros before its keys."""
    return _uncounted_join("BatchKVCache", hits)


@_full(
    "B18.padding-lost-where-lengths-meet",
    fault_class="mask ignored",
    source="a review: rows repeat",
    needs=("cache:KVCache",),
    kills=("traffic/lengths_meet",),
    where=_PADDING,
)
def lengths_meet(hits: Hits) -> Patch:
    """An uneven pair that joins just as many columns as it has is no longer padded."""
    return padding_lost_where_lengths_meet(cache_class("BatchKVCache"), hits)


@_mask(
    "B18.padding-of-a-rotating-join-seen",
    fault_class="mask ignored",
    kills=("staggered",),
    where=_PADDING,
    needs=ROTATING,
)
def padding_of_a_rotating_join_seen(hits: Hits) -> Patch:
    """In sliding layers a row that joins attends to the zeros before its keys."""
    return _uncounted_join("BatchRotatingKVCache", hits)


@_fill("D1.mask-of-smallest-positive")
def mask_of_smallest_positive(hits: Hits) -> Patch:
    """Masked keys get the smallest positive number instead of minus infinity."""
    return masked_with(1.17549435e-38, hits)


@_fill("D1.mask-of-wrong-sign")
def mask_of_wrong_sign(hits: Hits) -> Patch:
    """Masked keys get a large positive number."""
    return masked_with(1e4, hits)


@_mask(
    "A11.recurrent-mask-vanishes",
    fault_class="recurrent state",
    source="mlx-lm #1072",
    where=f"cache:*ArraysCache:*|{RECURRENT_MODULE}",
    needs=ARRAYS,
)
def recurrent_mask_vanishes(hits: Hits) -> Patch:
    """Recurrent layers take padding into their state.

    There is no mask. It takes effect where that changes a batch's output: zeros may leave a state
    zero.
    """
    caches = cache_class("ArraysCache")
    make_mask = caches.make_mask

    def none(*_: Any, **__: Any) -> None:
        pass

    def matters(batch: Any) -> bool:
        try:
            without = last_logits(batch, batch._inputs_embeds)
            with replace(caches, "make_mask", make_mask):
                return differs(without, last_logits(batch, batch._inputs_embeds))
        except Exception:  # noqa: BLE001 - whatever the library raises; the run raises it, too
            return True

    def effect(_: None, batch: Any, *__: Any, **___: Any) -> None:
        if batch._inputs_embeds is not None and any(batch._left_padding_per_row):
            hits.hit_if(matters(batch))

    return together(replace(caches, "make_mask", none), after(prompt_class(), "__init__", effect))


_STATES = ("cross_attention_states", "encoder_outputs", "encoder_hidden_states")
_cross = partial(mlx_vlm_fault, fault_class="cross-attention", source="mlx-vlm #1030")


@_cross(
    "B22.cross-states-of-another-row",
    kills=("images_together",),
    where=ATTENTION_MODULE,
    needs=("beside",),
)
def cross_states_of_another_row(hits: Hits) -> Patch:
    """Each row attends to the next one's image."""

    def roll(merged: Any, *_: Any) -> Any:
        kwargs = merged[1]
        for name in _STATES:
            states = kwargs.get(name)
            if isinstance(states, mx.array) and states.shape[0] > 1:
                hits.hit()
                kwargs[name] = mx.roll(states, 1, 0)
        return merged

    return after(part("generate.ar"), "_merge_prefill_prompt_kwargs", roll)


@_cross(
    "B22.guard-compares-a-scalar",
    kills=("equal_length", "ragged"),
    where="crash:*",
    needs=("family:mllama",),
    crash=True,
)
def guard_compares_a_scalar(hits: Hits) -> Patch:
    """The guard that the image was seen compares the offsets of all rows as one number."""

    def guard(_: Any, *__: Any, cache: Any = None, **options: Any) -> None:
        states = options.get("cross_attention_states")
        if states is None and cache is not None and isinstance(cache.offset, mx.array):
            hits.hit()
            bool(cache.offset > 0)

    return before(part("models.mllama.language").MllamaTextCrossAttention, "__call__", guard)
