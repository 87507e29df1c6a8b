"""mlx-vlm's windows of one stream that become windows with spare columns for drafts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import FILE, caches

_MOST, _STEP = 6, 4
_PIECES = (
    [1] * 14,
    [5, 1, 1, 3, 1],
    [3, 9, 7, 1],
    [12, 1, 1, 5],
    [2, 1, 6, 10],
    [1, 1, 4, 1, 1, 2],
)


def cache_window_properties() -> list[Property]:
    """The property of ``BufferedRotatingKVCache.from_cache``."""
    names = ("RotatingKVCache*", "BufferedRotatingKVCache*")
    return [Property("caches: windows that become buffered", FILE, names, _become)]


def _columns(first: int, width: int) -> tuple[mx.array, mx.array]:
    """Keys and values that encode their position, of different sizes."""
    at = np.arange(first, first + width, dtype=np.float32)[None, None, :, None]
    return mx.array(np.tile(at, (1, 2, 1, 4))), mx.array(np.tile(at + 0.5, (1, 2, 1, 2)))


def _positions(fetched: Sequence[Any]) -> list[int] | str:
    """The positions of the columns of keys and values, or a text if they differ."""
    keys, values = (np.array(one) for one in fetched)
    at = keys[0, 0, :, 0]
    if keys.shape != (1, 2, len(at), 4) or values.shape != (1, 2, len(at), 2):
        return f"columns are of {keys.shape} and {values.shape}"
    if (keys != at[:, None]).any() or (values != at[:, None] + 0.5).any():
        return "values are not those of their keys"
    return [int(one) for one in at]


def _become() -> Iterator[str]:
    """A converted window has the last contents in order, and continues from them.

    What a window does once it is buffered is in ``power/caches``.
    """
    make = caches.BufferedRotatingKVCache.from_cache
    if (made := make(caches.RotatingKVCache(5, 2))).meta_state != ("2", "5", "0", "0", "0", "64"):
        yield f"of nothing a window becomes {made.meta_state}"
    for pieces, spare in itertools.product(_PIECES, (0, 3)):
        cache = caches.RotatingKVCache(_MOST)
        cache.step = _STEP
        for number, width in enumerate(pieces):
            done = sum(pieces[:number])
            cache.update_and_fetch(*_columns(done, width))
            cls: Any = type("Stepped", (caches.BufferedRotatingKVCache,), {"step": _STEP})
            made = cls.from_cache(cache, buffer_size=spare)
            done += width
            held = list(range(max(0, done - _MOST), done))
            got = made.meta_state, _positions(made.state)
            meta = (0, _MOST, done, len(held), held[0], spare)
            if got != (tuple(map(str, meta)), held):
                yield f"a window of {done} tokens becomes {got}"
                return
            if made.keys.shape[2] != -(-(_MOST + spare) // _STEP) * _STEP:
                yield f"a window becomes one with room for {made.keys.shape[2]}"
            for more in (1, 3):
                if len(held) + more > _MOST + max(spare, more):
                    held = [at for at in held if at > done - _MOST]
                held += range(done, done + more)
                got = _positions(made.update_and_fetch(*_columns(done, more)))
                done += more
                if got != held:
                    yield f"a window that became buffered, fed {more}, holds {got}, not {held}"
    half = caches.RotatingKVCache(_MOST)
    half.update_and_fetch(*(one.astype(mx.bfloat16) for one in _columns(0, 3)))
    made = make(half)
    if {made.keys.dtype, made.values.dtype} != {mx.bfloat16} or made.keys.shape[2] != 256:
        yield f"a window becomes one of {made.keys.dtype}"
