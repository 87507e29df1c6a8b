"""Properties of mlx-lm's caches that no schedule and no sequence of their methods shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache

from conformance.core.properties import Property

_FILE = "mlx_lm/models/cache.py"
_WINDOW = 8


def cache_properties() -> list[Property]:
    """The properties of caches and of their store."""
    stores = ("LRUPromptCache.*", "PromptTrie.*")
    return [
        Property("caches: room", _FILE, ("*KVCache", "*KVCache.*"), _room),
        Property("kept: a prefix of one token", _FILE, stores, _kept),
    ]


def _column(tokens: Sequence[int]) -> tuple[mx.array, mx.array]:
    keys = mx.array([[[[float(token)] * 2 for token in tokens]]])
    return keys, keys + 0.5


def _room() -> Iterator[str]:
    """The counted bytes grow by 256 columns, up to the window."""
    for make, most in (
        (cache.KVCache, 512),
        (partial(cache.BatchKVCache, [0]), 512),
        (partial(cache.RotatingKVCache, 300), 300),
        (partial(cache.BatchRotatingKVCache, 300, [0]), 300),
        (partial(cache.RotatingKVCache, _WINDOW), _WINDOW),
        (partial(cache.BatchRotatingKVCache, _WINDOW, [0]), _WINDOW),
    ):
        entry: Any = make()
        first = entry.update_and_fetch(*_column([1]))
        column = sum(array.nbytes for array in first)
        for token in range(260):
            room = entry.nbytes // column
            if room != (min(256, most) if token < 256 else most):
                yield f"{type(entry).__name__} of {token + 1} tokens has room for {room}"
                break
            entry.update_and_fetch(*_column([token]))


def _kept() -> Iterator[str]:
    """A prompt takes a kept prefix of one token that cannot be cut, and computes the rest."""
    tokens = [5, 6, 7, 8]
    store = cache.LRUPromptCache()
    store.insert_cache("model", tokens[:1], [cache.ArraysCache(1)])
    found, rest = store.fetch_nearest_cache("model", tokens)
    got = len(found[0].cache) if found else 0
    if (got, rest) != (1, tokens[1:]):
        yield f"of 1 token kept those of {got} are found, {rest} are left"
