"""TurboQuant's cache of a single stream: its settings, what is kept of it, and put together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.attention_properties import causal_mask
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import Array
from conformance.plugins.mlx_vlm.properties.quantization.codecs import differs, drawn
from conformance.plugins.mlx_vlm.properties.quantization.turbo_batches import (
    HEADS,
    NOISE,
    SIZES,
    STEP,
    decoded,
)

caches: Any = compat.part("models.cache")
turboquant: Any = compat.part("turboquant")

_FILE = "mlx_vlm/turboquant.py"
_SEED = 5


def turbo_cache_properties() -> list[Property]:
    """Those of ``TurboQuantKVCache``."""
    mixin = "_TurboQuantAttentionMixin"
    names = ("TurboQuantKVCache*", f"{mixin}.*", "_*_kv_*", "_codecs_*", "_*_state*")
    return [
        Property("turbo: a single stream", _FILE, names, _stream),
        Property("turbo: what is kept", _FILE, names, _kept),
        Property("turbo: rows put together", _FILE, names, _merged),
    ]


def vectors(tokens: int, seed: int = 1) -> list[Array]:
    """Drawn keys and values of one row."""
    return [drawn((1, HEADS, tokens, size), seed + n) for n, size in enumerate(SIZES)]


def filled(tokens: int, bits: float = 3.5, *, seed: int = 1, **parts: Any) -> Any:
    """A cache of so many drawn tokens."""
    made = turboquant.TurboQuantKVCache(bits, _SEED, **parts)
    made.cache_step = STEP
    if tokens:
        made.update_and_fetch(*map(mx.array, vectors(tokens, seed)))
    return made


def against(held: Any, both: list[Array], name: str) -> Iterator[str]:
    """What a cache holds beside keys and values that were fed, the first three of them at once."""
    expected = decoded(both, (held.key_bits, held.value_bits), held.seed, 3)
    for got, one in zip(held.dequantize(), expected, strict=True):
        if found := differs(got, one, NOISE):
            yield f"{name} {found}"
    if held.offset != both[0].shape[2] or held.size() != held.offset or held.empty():
        yield f"{name} has {held.offset} tokens"


def _stream() -> Iterator[str]:
    kinds: tuple[tuple[float, dict[str, Any]], ...] = (
        *((3.5, {}), (4, {"key_bits": 2.5})),
        (2, {"value_bits": 3}),
    )
    for bits, parts in kinds:
        held = filled(0, bits, **parts)
        if (held.state, held.size(), held.dequantize_for_apc()) != ((None, None), 0, (None, None)):
            yield "a cache that is not fed has something"
        both = vectors(3)
        for more in (0, 1, 2):
            new = vectors(more, 7) if more else both
            got = held.update_and_fetch(*map(mx.array, new))
            both = [np.concatenate(two, 2) for two in zip(both, new, strict=True)] if more else both
            if [one.shape for one in got] != [(1, HEADS, held.offset, 0)] * 2:
                yield f"what it gives has the shape {got[0].shape}"
            yield from against(held, both, f"{bits} bits, {more} more:")
            if not same(held.dequantize(*got), held.dequantize_for_apc()):
                yield "what it gives is decoded as another"
        room = held.keys.low if hasattr(held.keys, "low") else held.keys
        if room.norms.shape[2] != 8 or held.state is not held.state:
            yield f"6 tokens have room for {room.norms.shape[2]}"
        masks = [held.make_mask(3, window_size=size, return_array=True) for size in (None, 2)]
        for mask, size in zip(masks, (None, 2), strict=True):
            if not np.array_equal(np.array(mask), causal_mask(3, 6, size, [0], [0])[0, 0]):
                yield f"a mask with the window {size} is another"
        yield from _changed(held, both)
    yield from _made()


def _made() -> Iterator[str]:
    """By default, and of a plain cache."""
    plain = caches.KVCache()
    made = turboquant.TurboQuantKVCache(4)
    for _ in range(2):
        made.update_and_fetch(mx.zeros((1, 1, 2, 4)), mx.zeros((1, 1, 2, 4)))
    if made.keys.norms.shape != (1, 1, 256):
        yield f"by default there is room for {made.keys.norms.shape[2]}"
    made = turboquant.TurboQuantKVCache.from_cache(plain, 4)
    if not made.empty() or (made.bits, made.seed, made.key_bits, made.value_bits) != (4, 0, 4, 4):
        yield "of an empty cache there is another"
    both = vectors(5)
    plain.update_and_fetch(*map(mx.array, both))
    for own, wanted in (((2.0, 4.0), (3.5, 3, 2, 4)), ((None, None), (3.5, 3, 3, 4))):
        made = turboquant.TurboQuantKVCache.from_cache(plain, 3.5, 3, *own)
        if (made.bits, made.seed, made.key_bits, made.value_bits) != wanted:
            yield f"of {own} a cache of {made.key_bits} and {made.value_bits} bits is made"
        yield from against(made, both, "made of a plain cache: it")


def same(one: Any, other: Any) -> bool:
    """Whether two pairs of keys and values are the same to the last bit."""
    return all(not differs(a, np.array(b), 0) for a, b in zip(one, other, strict=True))


def _changed(held: Any, both: list[Array]) -> Iterator[str]:
    """Settings there and back, cut, cleared at the end, set anew."""
    meta = held.meta_state
    again = turboquant.TurboQuantKVCache(8)
    again.meta_state = meta
    said = again.offset, again.bits, again.seed, again.key_bits, again.value_bits
    if said != (6, held.bits, _SEED, held.key_bits, held.value_bits):
        yield f"settings {meta} come back as {said}"
    again.meta_state = ("3", "3.5", "2")
    if (again.offset, again.bits, again.seed, again.key_bits, again.value_bits) != (
        3,
        3.5,
        2,
        3,
        4,
    ):
        yield "of settings without parts others come back"
    if not held.is_trimmable() or held.trim(2) != 2:
        yield "it is not trimmed"
    kept = [np.array(one) for one in held.dequantize()]
    yield from against(held, [one[:, :, :4] for one in both], "trimmed: it")
    held.zero_row_tail(0, 3, 4)
    for one in kept:
        one[:, :, 3:] = 0
    if not same(held.dequantize(), [mx.array(one) for one in kept]):
        yield "another end is cleared"
    again.key_codec, again.value_codec = held.key_codec, held.value_codec
    again.state = held.state
    if again.offset != 4 or not same(again.dequantize(), held.dequantize()):
        yield "a state that is put in is another"
    again.state = None
    if (again.offset, again.keys, again.values, again.state) != (0, None, None, (None, None)):
        yield "a state of nothing leaves something"
    if held.trim(9) != 4 or held.dequantize_for_apc() != (None, None):
        yield "more is trimmed than there is"


def _kept() -> Iterator[str]:
    """As a file keeps it, without names of parts; with room for more."""
    kinds: tuple[tuple[float, dict[str, Any]], ...] = (
        *((3.5, {}), (4, {"key_bits": 2.5})),
        (2, {"value_bits": 1.5}),
    )
    for bits, parts in kinds:
        held = filled(5, bits, **parts)
        held.trim(1)
        snapshot = held.prefix_cache_snapshot()
        for which in ("keys", "values"):
            snapshot[which] = _plain(snapshot[which])
        again = turboquant.TurboQuantKVCache(8)
        again.cache_step = STEP
        again.prefix_cache_restore(snapshot)
        both = vectors(5)
        # Which elements have more bits was decided by all five tokens.
        if not same(again.dequantize(), held.dequantize()) or again.meta_state != held.meta_state:
            yield f"a cache of {bits} bits comes back as another"
        if (again.offset, again.seed) != (4, _SEED):
            yield f"a cache of 4 tokens comes back with {again.offset}"
        reserved = again.prefix_cache_reserve(7)
        if reserved[0] is not again.keys or reserved[1] is not again.values:
            yield "room is made elsewhere"
        if [turboquant._state_length(one) for one in reserved] != [8, 8]:
            yield "the room is another"
        for one in (again, held):
            one.update_and_fetch(*(mx.array(part[:, :, :2]) for part in both))
        if not same(again.dequantize(), held.dequantize()):
            yield f"a cache of {bits} bits that comes back goes on as another"
    empty = filled(0)
    again = turboquant.TurboQuantKVCache(8)
    again.prefix_cache_restore(empty.prefix_cache_snapshot())
    if not again.empty() or again.prefix_cache_reserve(3) != ():
        yield "an empty cache comes back as another"
    lost = filled(3).prefix_cache_snapshot()
    for missing in ("key_codec", "value_codec"):
        try:
            again.prefix_cache_restore({**lost, missing: None})
            yield "keys come back without what they are read by"
        except ValueError:
            pass


def _plain(state: Any) -> Any:
    """Lists in place of named parts."""
    return state if isinstance(state, mx.array) else [_plain(part) for part in state]


def _merged() -> Iterator[str]:
    """Rows of different lengths beside rows without a prefix; else nothing."""
    rows = [filled(3), caches.KVCache(), filled(5, seed=3), filled(0)]
    merge = filled(0).prefix_cache_merge
    made = merge(rows, [3, 0, 5, 0])
    said = made.offset.tolist(), made.left_padding.tolist(), made._idx
    if said != ([3, 0, 5, 0], [2, 5, 0, 5], 5):
        yield f"rows of 3, 0 and 5 tokens are {said}"
    if (made.bits, made.key_bits, made.value_bits, made.seed) != (3.5, 3, 4, _SEED):
        yield "rows put together have other bits"
    apart = rows[0].dequantize(), rows[2].dequantize()
    for got, *alone in zip(made.dequantize(), *apart, strict=True):
        whole = np.zeros((4, *np.array(got).shape[1:]))
        whole[0, :, 2:], whole[2] = np.array(alone[0])[0], np.array(alone[1])[0]
        if found := differs(got, whole, 0):
            yield f"what rows hold {found}"
    none = merge([filled(0), caches.KVCache()], [0, 0])
    if none.keys is not None or none.offset.tolist() != [0, 0]:
        yield "rows without tokens have some"
    parts: dict[str, Any] = {"key_bits": 2.5}
    halves = [filled(3, seed=seed, **parts) for seed in (1, 1, 20)]
    merge_half = filled(0, **parts).prefix_cache_merge
    if merge_half(halves[:2], [3, 3]) is None:
        yield "rows of one codec are refused"
    fed = caches.KVCache()
    fed.update_and_fetch(*map(mx.array, vectors(2)))
    other_seed = turboquant.TurboQuantKVCache(3.5, _SEED + 1)
    wrong = (
        partial(merge, [], []),
        partial(merge, rows, [3, 0, 5]),
        partial(merge, rows, [3, 0, 4, 0]),
        partial(merge, [fed], [2]),
        partial(merge, [object()], [0]),
        partial(merge, [other_seed, rows[0]], [0, 3]),
        partial(merge, [filled(3, 4), rows[0]], [3, 3]),
        partial(merge, [filled(0, 3.5, key_bits=2), rows[0]], [0, 3]),
        partial(merge, [filled(0, 3.5, value_bits=2), rows[0]], [0, 3]),
        partial(merge_half, halves[1:], [3, 3]),
        partial(filled(0, value_bits=2.5).prefix_cache_merge, _values_apart(), [3, 3]),
    )
    taken = [at for at, call in enumerate(wrong) if call() is not None]
    if taken:
        yield f"rows that do not fit are put together: {taken}"


def _values_apart() -> list[Any]:
    return [filled(3, seed=seed, value_bits=2.5) for seed in (1, 20)]
