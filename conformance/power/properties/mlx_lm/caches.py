"""Properties of mlx-lm's caches that no sequence of batch methods reaches: windows, padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache

from conformance.core.properties import Property

_FILE = "mlx_lm/models/cache.py"
# The columns of a window, the number of first tokens that stay, and the tokens fed.
_WINDOW, _FIRST, _TOKENS = 8, 4, 19


def cache_properties() -> list[Property]:
    """The properties of caches."""
    return [
        Property("caches: those of a model", _FILE, ("make_prompt_cache", "*KVCache.*"), _of_model),
        Property("caches: the first tokens", _FILE, ("RotatingKVCache.*",), _first_tokens),
        Property("caches: room", _FILE, ("*KVCache", "*KVCache.*"), _room),
        Property("caches: padding of states", _FILE, ("ArraysCache.*",), _padding),
        Property("caches: prepared", _FILE, ("Batch*KVCache.*",), _prepared),
        Property("caches: what is refused", _FILE, ("Batch*KVCache.*",), _refused),
    ]


def _column(tokens: Sequence[int]) -> tuple[mx.array, mx.array]:
    keys = mx.array([[[[float(token)] * 2 for token in tokens]]])
    return keys, keys + 0.5


def _held(entry: Any, pieces: Sequence[int]) -> set[int] | str:
    """The tokens that a cache holds after pieces of these sizes, or a problem of its values."""
    done = 0
    for width in pieces:
        keys, values = entry.update_and_fetch(*_column(range(done, done + width)))
        done += width
        if not mx.array_equal(keys + 0.5, values):
            return "values are not those of its keys"
        if entry.offset != done:
            return f"its offset is {entry.offset} after {done} tokens"
        full = isinstance(entry, cache.RotatingKVCache) and done >= entry.max_size
        if entry.is_trimmable() == full:
            return f"is_trimmable() is {not full} after {done} tokens"
    return set(np.array(keys)[0, 0, :, 0].astype(int).tolist())


def _of_model() -> Iterator[str]:
    """One cache a layer, or the model's own; with a bound, the first four tokens stay."""
    own = [cache.ArraysCache(1)]
    maker = SimpleNamespace(make_cache=lambda: own, layers=[None] * 3)
    for bound in (None, _WINDOW):
        if cache.make_prompt_cache(maker, bound) is not own:
            yield f"with a bound of {bound} a model's own caches are not taken"
        made = cache.make_prompt_cache(SimpleNamespace(layers=[None] * 3), bound)
        last = set(range(_TOKENS))
        if bound is not None:
            last -= set(range(4, _TOKENS - bound + 4))
        for entry in made:
            if (got := _held(entry, [1] * _TOKENS)) != last:
                yield f"with a bound of {bound} a cache holds {got} of {_TOKENS} tokens"
        if len({id(entry) for entry in made}) != 3:
            yield f"{len(made)} caches for 3 layers"


def _first_tokens() -> Iterator[str]:
    """A window keeps the first and last tokens; for a block, also what its first query sees."""
    for first in (0, 1, _FIRST):
        for pieces in ([1] * _TOKENS, [5] + [1] * 14, [3, 9, 7], [12, 1, 1, 5], [2, 1, 6, 10]):
            entry = cache.RotatingKVCache(max_size=_WINDOW, keep=first)
            got = _held(entry, pieces)
            if isinstance(got, str):
                yield got
                continue
            least = set(range(first)) | set(range(_TOKENS - _WINDOW + first, _TOKENS))
            most = _WINDOW + (pieces[-1] - 1 if pieces[-1] > 1 else 0)
            if not least <= got or len(got) > most:
                yield f"{got} are held of {_TOKENS} tokens in pieces of {pieces}, {first} kept"
            if entry.size() != _WINDOW:
                yield f"after {pieces} its size is {entry.size()}"


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


def _padding() -> Iterator[str]:
    """Columns count if they are after the left padding and within the row's length."""
    left, lengths = [2, 0, 5], [6, 3, 9]
    if (rows := cache.ArraysCache(1).batch_size) != 1:
        yield f"of a cache that knows nothing {rows} rows are counted"
    for padded, bounded, widths in (
        (True, False, (1, 4, 2)),
        (False, True, (4, 1, 5)),
        (True, True, (3, 3, 4)),
    ):
        entry = cache.ArraysCache(2, left_padding=left if padded else None)
        if bounded:
            entry.prepare(lengths=lengths)
        if entry.batch_size != len(left):
            yield f"{entry.batch_size} rows are counted, not {len(left)}"
        done = 0
        for width in widths:
            at = done + np.arange(width)
            real = np.ones((len(left), width), bool)
            real &= at >= np.array(left)[:, None] if padded else True
            real &= at < np.array(lengths)[:, None] if bounded else True
            mask = entry.make_mask(width)
            if mask is None or np.array(mask).tolist() != real.tolist():
                yield f"columns {at.tolist()}, padding {padded}, lengths {bounded}: a wrong mask"
            entry.advance(width)
            done += width
        entry.finalize()
        if entry.make_mask(3) is not None:
            yield "after the last piece there is a mask"


def _prepared() -> Iterator[str]:
    """Left padding is added to existing padding; without right padding, nothing waits."""
    batches: list[Any] = [cache.BatchKVCache([1, 0]), cache.BatchRotatingKVCache(_WINDOW, [1, 0])]
    for batch in batches:
        batch.prepare(left_padding=[2, 3], lengths=[4, 4], right_padding=[0, 0])
        said = batch.left_padding.tolist(), batch.offset.tolist()
        if said != ([3, 3], [-3, -3]):
            yield f"{type(batch).__name__}: padding and offsets are {said}"
        column = mx.ones((2, 1, 1, 2))
        batch.update_and_fetch(column, column)  # refused if it waited for finalize()
        if batch.offset.tolist() != [-2, -2]:
            yield f"{type(batch).__name__}: offsets after a column are {batch.offset.tolist()}"


def _refused() -> Iterator[str]:
    """Left padding of a filled cache, and windows of several sizes in one batch."""
    batches: list[Any] = [cache.BatchKVCache([0]), cache.BatchRotatingKVCache(_WINDOW, [0])]
    for batch in batches:
        batch.update_and_fetch(*_column([1, 2]))
        if problem := _taken(partial(batch.prepare, left_padding=[1])):
            yield f"{type(batch).__name__}: padding before tokens {problem}"
    windows: list[Any] = [cache.RotatingKVCache(size) for size in (_WINDOW, _WINDOW + 1)]
    for entry in windows:
        entry.update_and_fetch(*_column([1, 2]))
    if problem := _taken(partial(cache.RotatingKVCache.merge, windows)):
        yield f"windows of two sizes: {problem}"


def _taken(call: Any) -> str:
    try:
        call()
    except ValueError:
        return ""
    return "is taken"
