"""Faults of attention masks: what is seen that should not be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs
from conformance.plugins.mlx_vlm.faults.embeddings import said
from conformance.plugins.mlx_vlm.faults.patching import after, fault, part, prompt_class

_ENDLESS = 1 << 30
_BATCH = ("cache:KVCache|cache:SimpleKVCache|cache:ChunkedKVCache",)


def _cache(name: str) -> Any:
    return getattr(part("models.cache"), name)


def _mask(
    kind: str, change: Callable[[Any, Any, int], Any], hits: Hits
) -> AbstractContextManager[None]:
    """``change(cache, mask, n)`` in place of the mask for ``n`` new tokens."""

    def then(self: Any, mask: Any, args: tuple[Any, ...]) -> Any:
        wrong = change(self, mask, args[0])
        if wrong is not mask and bool((wrong != mask).any().item()):
            hits.hit()
        return wrong

    return after(_cache(kind), "make_mask", then)


def _vanished(hits: Hits) -> AbstractContextManager[None]:
    def causal(cache: Any, mask: Any, n: int) -> Any:
        whole = part("models.cache").create_causal_mask(n, offset=cache._idx)
        return mx.broadcast_to(whole, mask.shape)

    return _mask("BatchKVCache", causal, hits)


def _cut(hits: Hits) -> AbstractContextManager[None]:
    def new_columns(_: Any, mask: Any, n: int) -> Any:
        return mask | (mx.arange(mask.shape[-1]) < mask.shape[-1] - n)

    return _mask("BatchKVCache", new_columns, hits)


def _no_window(hits: Hits) -> AbstractContextManager[None]:
    real = _cache("BatchRotatingKVCache").make_mask

    def make_mask(self: Any, count: int, **options: Any) -> Any:
        right = real(self, count, **options)
        wrong = real(self, count, **{**options, "window_size": _ENDLESS})
        if bool((right != wrong).any().item()):
            hits.hit()
        return wrong

    return replaced(_cache("BatchRotatingKVCache"), "make_mask", make_mask)


@contextlib.contextmanager
def _join(kind: str, hits: Hits) -> Iterator[None]:
    """The columns that a shorter batch is given when it joins are not counted as its padding."""
    owner = _cache(kind)
    real_extend, real_mask = owner.extend, owner.make_mask

    def extend(self: Any, other: Any) -> None:
        known = mx.concatenate([self.left_padding, other.left_padding])
        real_extend(self, other)
        self.uncounted = bool((known != self.left_padding).any().item())
        self.left_padding = known

    def make_mask(self: Any, *args: Any, **options: Any) -> Any:
        # Some models ask no cache for a mask: they note themselves which columns are tokens.
        if getattr(self, "uncounted", False):
            hits.hit()
        return real_mask(self, *args, **options)

    with replaced(owner, "extend", extend), replaced(owner, "make_mask", make_mask):
        yield


def _unmasked_join(hits: Hits) -> AbstractContextManager[None]:
    return _join("BatchKVCache", hits)


def _unmasked_rotating_join(hits: Hits) -> AbstractContextManager[None]:
    return _join("BatchRotatingKVCache", hits)


@contextlib.contextmanager
def _fill(value: float, hits: Hits) -> Iterator[None]:
    """A boolean mask is turned into a sum in which masked places get ``value``."""
    real = mx.fast.scaled_dot_product_attention

    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        mask = options.get("mask")
        if isinstance(mask, mx.array) and mask.dtype == mx.bool_:
            if not bool(mask.all().item()):
                hits.hit()
            options["mask"] = mx.where(mask, 0.0, value).astype(q.dtype)
        return real(q, k, v, **options)

    with replaced(mx.fast, "scaled_dot_product_attention", attention):
        yield


def _smallest_positive(hits: Hits) -> AbstractContextManager[None]:
    return _fill(1.17549435e-38, hits)


def _wrong_sign(hits: Hits) -> AbstractContextManager[None]:
    return _fill(1e4, hits)


@contextlib.contextmanager
def _recurrent_mask(hits: Hits) -> Iterator[None]:
    """No mask; a hit where a batch says something else for it: zeros may leave a state zero."""
    caches, batch = _cache("ArraysCache"), prompt_class()
    real_mask, real_init = caches.make_mask, batch.__init__

    def none(self: Any, *args: Any, **options: Any) -> None:
        del self, args, options

    def init(self: Any, *args: Any, **options: Any) -> None:
        real_init(self, *args, **options)
        if self._inputs_embeds is not None and _told(self, caches, real_mask):
            hits.hit()

    with replaced(caches, "make_mask", none), replaced(batch, "__init__", init):
        yield


def _told(batch: Any, caches: Any, real_mask: Any) -> bool:
    """Whether a batch of prompts says something else without the masks of its states."""
    if not any(batch._left_padding_per_row):
        return False
    try:
        without = said(batch, batch._inputs_embeds)
        with replaced(caches, "make_mask", real_mask):
            return differs(without, said(batch, batch._inputs_embeds))
    except Exception:  # noqa: BLE001 - whatever the library raises; the run raises it, too
        return True


FAULTS = (
    fault(
        "B6.padding-mask-vanishes",
        "mask ignored",
        "mlx-vlm #1030",
        "the mask is made without a cache: only causal, padding is seen",
        _vanished,
        kills="ragged",
        where="module:*ttention",
        needs=_BATCH,
    ),
    fault(
        "B5.mask-cut-to-the-chunk",
        "mask misalignment",
        "mlx-vlm #1030",
        "the mask covers the new chunk only, padding before it is seen",
        _cut,
        kills="ragged",
        where="module:*ttention",
        needs=_BATCH,
    ),
    fault(
        "B15.mask-without-window",
        "mask misalignment",
        "mlx-vlm #1030",
        "sliding layers are given the mask of full ones",
        _no_window,
        kills="window",
        where="module:*ttention",
        # No key depends on the mask of a last layer; its last token sees what the cache holds.
        needs=("window", "inner:RotatingKVCache"),
    ),
    fault(
        "B18.padding-of-a-join-seen",
        "mask ignored",
        "mlx-vlm #1030",
        "a short row that joins a long one attends to the zeros before its keys",
        _unmasked_join,
        # In its other schedules who would attend to them has its last token already.
        kills="staggered/short_into_long mixed_modality",
        where="cache:*:left_padding",
        needs=_BATCH,
    ),
    fault(
        "B18.padding-of-a-rotating-join-seen",
        "mask ignored",
        "mlx-vlm #1030",
        "in sliding layers a row that joins attends to the zeros before its keys",
        _unmasked_rotating_join,
        kills="staggered",
        where="cache:*:left_padding",
        needs=("cache:RotatingKVCache",),
    ),
    fault(
        "D1.mask-of-smallest-positive",
        "mask fill",
        "a Swift engine's fork",
        "masked keys get the smallest positive number instead of minus infinity",
        _smallest_positive,
        kills="ragged",
        where="module:*ttention",
    ),
    fault(
        "D1.mask-of-wrong-sign",
        "mask fill",
        "a Swift engine's fork",
        "masked keys get a large positive number",
        _wrong_sign,
        kills="ragged",
        where="module:*ttention",
    ),
    fault(
        "A11.recurrent-mask-vanishes",
        "recurrent state",
        "mlx-lm #1072",
        "recurrent layers take padding into their state",
        _recurrent_mask,
        kills="ragged",
        where="cache:*ArraysCache:*|module:*amba*|module:*Mixer|module:*DeltaNet*",
        needs=("cache:ArraysCache",),
    ),
)
