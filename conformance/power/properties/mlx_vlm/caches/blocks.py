"""Blocks of drafted tokens in caches of recurrent layers: only kept tokens have an effect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.power.properties.mlx_vlm.caches.parts import (
    FILE,
    caches,
    commits,
    differs,
    drawn,
    kept_of,
    refuses,
)

_WIDTH, _SIZE = 2, 3
_WINDOW, _STATE, _OTHER = range(3)
_PADDING = 5


def cache_block_properties() -> list[Property]:
    """The properties of ``ArraysCache``."""
    names = ("ArraysCache.*", "_speculative_lengths", "_BaseCache.*")
    return [
        Property("caches: blocks of recurrent layers", FILE, names, _blocks),
        Property("caches: blocks given up", FILE, names, _given_up),
        Property("caches: blocks that are refused", FILE, names, _refused),
        Property("caches: windows of rows", FILE, names, _windows),
    ]


class _Layer:
    """A layer with a convolution's window, a state that doubles, and a cache of both."""

    def __init__(self, rows: int, *, warm: bool) -> None:
        self.rows = rows
        self.cache = caches.ArraysCache(3)
        self.cache[_OTHER] = mx.ones((rows, 2))
        self.window = np.zeros((rows, _WIDTH, _SIZE), np.float32)
        self.state = np.zeros((rows, _SIZE), np.float32)
        self.warm = warm
        if warm:
            self.first = self.feed(drawn(rows, rows, 3, _SIZE))
            self.window, self.state = self.after(drawn(rows, rows, 3, _SIZE), [3] * rows)

    def after(self, tokens: np.ndarray, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Window and state of each row after ``counts`` of the tokens, ``[row, ..., size]``."""
        windows, states = [], []
        for row, count in enumerate(counts):
            fed = tokens[row, :count]
            windows.append(np.concatenate([self.window[row], fed])[count : count + _WIDTH])
            state = self.state[row]
            for token in fed:
                state = 2 * state + token
            states.append(state)
        return np.stack(windows), np.stack(states)

    def feed(self, tokens: np.ndarray) -> list[Any]:
        """Feed tokens like a layer; returns the cache's requests and results."""
        rows, count, _ = tokens.shape
        cache, asked = self.cache, []
        before = cache[_WINDOW]
        before = mx.zeros((rows, _WIDTH, _SIZE)) if before is None else before
        source = mx.concatenate([before, mx.array(tokens)], axis=1)
        window = cache.update_window(_WINDOW, source, _WIDTH)

        def update(state: Any, steps: int | None) -> tuple[Any, ...]:
            asked.append(steps)
            state = mx.zeros((rows, _SIZE)) if state is None else state
            states = []
            for index in range(count):
                state = 2 * state + mx.array(tokens[:, index])
                states.append(state)
            history = (mx.stack(states[:-1], axis=1),) if steps else ()
            return ("out", state, *history)

        output, state = cache.update_recurrent(_STATE, count, update)
        cache.advance(count)
        return [output, window is cache[_WINDOW], state is cache[_STATE], *asked]

    def held(self) -> int:
        """Bytes of the cache's arrays before a block."""
        rows = self.rows
        return 4 * (rows * 2 + self.warm * rows * (_WIDTH + 1) * _SIZE)


def _pieces(total: int) -> list[list[int]]:
    return [
        list(one) for one in {(total,), (1,) * total, (total - 1, 1), (1, total - 1)} if all(one)
    ]


def _blocks() -> Iterator[str]:
    """Blocks of one row and several, in one piece and several, at the beginning and later."""
    known = itertools.cycle([("left_padding",), ("lengths",), ()])
    for rows, total, warm in itertools.product((1, 3), (1, 3), (True, False)):
        for pieces, lengths in itertools.product(_pieces(total), commits(rows, total)):
            yield from _block(_Layer(rows, warm=warm), total, pieces, lengths, next(known))


def _block(
    layer: _Layer, total: int, pieces: list[int], lengths: Any, known: tuple[str, ...]
) -> Iterator[str]:
    cache, rows = layer.cache, layer.rows
    if layer.warm and layer.first != ["out", True, True, None]:
        yield f"without a block a layer is given {layer.first}"
    for name in known:
        setattr(cache, name, mx.arange(rows) + _PADDING + 1)
        cache.advance(1)
    tokens = drawn(7, rows, total, _SIZE)
    number, revision = cache.start_speculation(total), cache.metadata_revision
    if not cache.is_speculating or cache.history_capacity != total:
        yield f"a block of {total} holds {cache.history_capacity}"
    done = 0
    for count in pieces:
        got = layer.feed(tokens[:, done : done + count])
        if got != ["out", True, True, count - 1 if count > 1 else None]:
            yield f"a layer that is fed {count} tokens of {total} is given {got}"
        done += count
    if len(pieces) == 1:
        new = rows * _SIZE * (_WIDTH + 1 + _WIDTH + total + total - 1)
        if cache.nbytes != layer.held() + 4 * new:
            yield f"a block of {total} takes {cache.nbytes} bytes, not {layer.held() + 4 * new}"
    cache.commit_speculation(lengths, number) if rows > 1 else cache.commit_speculation(lengths)
    kept = kept_of(lengths, rows)
    window, state = layer.after(tokens, kept)
    fresh = not layer.warm and set(kept) == {0}
    said = f"{rows} rows that keep {kept} of {pieces}"
    yield from differs(cache[_WINDOW], window, f"the window of {said}")
    yield from differs(cache[_STATE], None if fresh else state, f"the state of {said}")
    yield from differs(cache[_OTHER], np.ones((rows, 2), np.float32), f"another state of {said}")
    for name in ("left_padding", "lengths"):
        left = np.arange(rows, dtype=np.int32) + _PADDING - np.array(kept, np.int32)
        yield from differs(
            getattr(cache, name), left if name in known else None, f"{name} of {said}"
        )
    if cache.is_speculating or cache.history_capacity or cache.metadata_revision != revision + 1:
        yield f"a block is not at its end after {said}"
    cache.advance(2)
    for name in known:
        yield from differs(getattr(cache, name), left - 2, f"{name} after {said}")
    if cache.start_speculation(1) != number + 1:
        yield "another block has the number of one before"


def _given_up() -> Iterator[str]:
    """After a block is discarded, nothing of it is left; there may be no block."""
    for rows, known in itertools.product((1, 3), ("left_padding", "lengths", None)):
        layer = _Layer(rows, warm=True)
        cache = layer.cache
        cache.abort_speculation()
        if known:
            setattr(cache, known, mx.arange(rows) + _PADDING + 1)
            cache.advance(1)
        for given in (True, False):
            number, revision = cache.start_speculation(2), cache.metadata_revision
            layer.feed(drawn(2, rows, 2, _SIZE))
            yield from refuses(RuntimeError, cache.abort_speculation, number + 1)
            cache.abort_speculation(number) if given else cache.abort_speculation()
            yield from differs(cache[_WINDOW], layer.window, "the window after a block given up")
            yield from differs(cache[_STATE], layer.state, "the state after a block given up")
            left = np.arange(rows, dtype=np.int32) + _PADDING
            for name in ("left_padding", "lengths"):
                wanted = left if name == known else None
                yield from differs(getattr(cache, name), wanted, f"{name} after it")
            if cache.is_speculating or cache.metadata_revision != revision + 1:
                yield "a block that is given up goes on"
            if cache.nbytes != layer.held():
                yield f"without a block it takes {cache.nbytes} bytes, not {layer.held()}"


def _fed(total: int, fed: int | None = None) -> _Layer:
    layer = _Layer(2, warm=True)
    layer.cache.start_speculation(total)
    if fed:
        layer.feed(drawn(3, 2, fed, _SIZE))
    return layer


def _steps(history: int | None) -> Any:
    """An update that returns ``history`` states besides the last one; ``None``: no history."""
    more = () if history is None else (mx.zeros((2, history, _SIZE)) if history else None,)
    return lambda *_: ("out", mx.ones((2, _SIZE)), *more)


def _refused() -> Iterator[str]:
    """Empty blocks and pieces, more tokens than announced, and unrecorded states are refused."""
    for length in (0, -1):
        yield from refuses(ValueError, caches.ArraysCache(1).start_speculation, length)
        yield from refuses(ValueError, _fed(2).cache.update_recurrent, _STATE, length, _steps(None))
    for count, history in ((2, None), (2, 0), (1, 1)):
        call = _fed(2).cache.update_recurrent
        yield from refuses(ValueError, call, _STATE, count, _steps(history))
    for fed, count in ((0, 3), (1, 2), (2, 1)):
        yield from refuses(ValueError, _fed(2, fed).cache.update_recurrent, _STATE, count, None)
    plain = _Layer(2, warm=False).cache
    for width in (-1, 4):
        for cache in (plain, _fed(2).cache):
            yield from refuses(ValueError, cache.update_window, _WINDOW, mx.zeros((2, 3, 1)), width)
        call = _fed(2).cache.record_speculative_window
        yield from refuses(ValueError, call, _WINDOW, mx.zeros((2, 3, 1)), width)
    for fed, width, columns in ((0, 2, 5), (1, 2, 4), (1, 1, 2)):
        call = _fed(2, fed).cache.record_speculative_window
        yield from refuses(ValueError, call, _WINDOW, mx.zeros((2, columns, _SIZE)), width)
    one = mx.zeros((2, _SIZE))
    for slot, states in ((_WINDOW, None), (_STATE, mx.zeros((2, 1, _SIZE)))):
        call = _fed(2, 1).cache.record_speculative_states
        yield from refuses(ValueError, call, slot, states, one)
    yield from refuses(
        ValueError, _fed(2, 1).cache.record_speculative_window, _STATE, mx.zeros((2, 3, 1)), _WIDTH
    )
    plain.record_speculative_states(_STATE, None, one)
    plain.record_speculative_window(_WINDOW, mx.zeros((2, 3, 1)), 2)
    yield from refuses(RuntimeError, plain.commit_speculation, 0)
    yield from _not_kept()
    yield from _edges()


def _not_kept() -> Iterator[str]:
    """Missing rows, lengths out of bounds, another block's number, partial blocks are refused."""
    for lengths in ([1], [1, 1, 1], [-1, 0], [0, 3], 3, -1, mx.array([1])):
        yield from refuses(ValueError, _fed(2, 2).cache.commit_speculation, lengths)
    number = _fed(2, 2).cache._speculation_generation
    for other in (number + 1, 0):
        yield from refuses(RuntimeError, _fed(2, 2).cache.commit_speculation, 1, other)
        yield from refuses(RuntimeError, _fed(2, 2).cache.validate_speculation, 1, other)
    yield from refuses(RuntimeError, _fed(2, 1).cache.commit_speculation, 1)
    for slot in range(3):
        layer = _fed(2)
        layer.cache[slot] = mx.zeros((2, 2))
        yield from refuses(RuntimeError, layer.cache.commit_speculation, 1)


def _edges() -> Iterator[str]:
    """Limits are accepted: an empty window, an empty piece."""
    cache = caches.ArraysCache(2)
    got = cache.update_window(0, mx.zeros((2, 3, 1)), 0)
    yield from differs(got, np.zeros((2, 0, 1), np.float32), "a window of nothing")
    got = cache.update_window(0, mx.ones((2, 3, 1)), 3)
    yield from differs(got, np.ones((2, 3, 1), np.float32), "a window of all")
    if cache.start_speculation("2") != 1 or cache.history_capacity != 2:
        yield "a length that is no number is not made one"
    cache.record_speculative_window("1", mx.ones((2, 5, 1)), "3")
    if cache._recorded_length(1) != 2 or cache._recorded_length(0) != 0:
        yield "what is recorded of a window is not as long as its piece"
    cache.commit_speculation([1, 2])
    yield from differs(cache[1], np.ones((2, 3, 1), np.float32), "a window of three")
    cache.start_speculation(1)
    cache.record_speculative_window(0, mx.ones((2, 3, 1)), 3)
    cache.record_speculative_window(0, mx.ones((2, 4, 1)), 3)
    cache.record_speculative_window(1, mx.ones((2, 1, 1)), 0)
    cache.commit_speculation([0, 1])
    yield from differs(cache[1], np.zeros((2, 0, 1), np.float32), "no window")
    history, last = drawn(2, 3, 3, 1), drawn(3, 3, 1)
    cache = caches.ArraysCache(1)
    cache[0] = mx.zeros((3, 1))
    cache.start_speculation(4)
    cache.record_speculative_states("0", mx.array(history), mx.array(last))
    cache.commit_speculation([1, 3, 4])
    yield from differs(cache[0], np.stack([history[0, 0], history[1, 2], last[2]]), "states of one")


def _windows() -> Iterator[str]:
    """The last columns of each row, for rows with padding on the right."""
    source = drawn(1, 3, 6, 2)
    for width in (0, 1, 2, 4):
        for lengths in ([0, 1, 2], [9, 6 - width, -1]):
            cache = caches.ArraysCache(1)
            got = cache.update_window(0, mx.array(source), width, lengths=mx.array(lengths))
            starts = [min(max(length, 0), 6 - width) for length in lengths]
            wanted = [row[start : start + width] for row, start in zip(source, starts, strict=True)]
            yield from differs(got, np.stack(wanted), f"windows of {width} behind {lengths}")
            yield from differs(cache[0], np.stack(wanted), "what is held of them")
            deep = mx.array(source[..., None])
            got = cache.update_window(0, deep, width, lengths=mx.array(lengths))
            yield from differs(got, np.stack(wanted)[..., None], "deep windows")
