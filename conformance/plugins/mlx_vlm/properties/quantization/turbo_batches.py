"""TurboQuant's cache of a batch beside its rows: fed, cut, joined, chosen, taken out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.attention_properties import causal_mask
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.quantization import codec_numbers as wanted
from conformance.plugins.mlx_vlm.properties.quantization.codec_numbers import Array
from conformance.plugins.mlx_vlm.properties.quantization.codecs import differs, drawn

turboquant: Any = compat.part("turboquant")

HEADS, SIZES = 2, (8, 4)
STEP = 4
_SEED = 5
# A length is rounded to 11 bits, once up and once down where it is between two.
NOISE = 1e-2


def turbo_batch_properties() -> list[Property]:
    """Those of ``BatchTurboQuantKVCache``."""
    names = ("BatchTurboQuantKVCache*", "_turboquant_memory_profile", "_*_state*", "_state_*")
    return [
        Property("turbo: rows of a batch", "mlx_vlm/turboquant.py", names, _rows),
        Property("turbo: batches joined", "mlx_vlm/turboquant.py", names, _joined),
        Property(
            "turbo: batches of half bits joined", "mlx_vlm/turboquant.py", names, _half_joined
        ),
    ]


def decoded(
    both: Sequence[Array], bits: Sequence[float], seed: int, first: int | None = None
) -> list[Array]:
    """Keys and values after quantizing and back; those of values have the next seed."""
    pairs = zip(both, bits, (seed, seed + 1), strict=True)
    return [wanted.decoded(one.astype(np.float64), own, at, first) for one, own, at in pairs]


class Rows:
    """A cache of a batch beside the keys and values of each row, ``[heads, tokens, size]``."""

    def __init__(self, padding: list[int], bits: float, *, seed: int = 0, **parts: float) -> None:
        self.cache = turboquant.BatchTurboQuantKVCache(padding, bits, _SEED, **parts)
        self.cache.cache_step = STEP
        self.rows: list[list[Array]] = [
            [np.zeros((HEADS, 0, size), np.float32) for size in SIZES] for _ in padding
        ]
        self._drawn = seed

    def feed(self, tokens: int) -> Iterator[str]:
        """So many tokens for each row, of which columns of padding hold what is no row's."""
        held = self.cache
        starts = held.offset.tolist()
        given = [drawn((len(starts), HEADS, tokens, size), self._next()) for size in SIZES]
        got = held.update_and_fetch(*map(mx.array, given))
        if [one.shape for one in got] != [(1, HEADS, held._idx, 0)] * 2:
            yield f"what a batch gives has the shape {got[0].shape}"
        pairs = zip(held.dequantize(*got), held.dequantize(), strict=True)
        if any(differs(a, np.array(b), 0) for a, b in pairs):
            yield "what a batch gives is decoded as another"
        for row, start in enumerate(starts):
            new = [one[row, :, max(-start, 0) :] for one in given]
            pairs = zip(self.rows[row], new, strict=True)
            self.rows[row] = [np.concatenate(pair, axis=1) for pair in pairs]

    def _next(self) -> int:
        self._drawn += 1
        return self._drawn

    def problems(self, when: str) -> Iterator[str]:
        """What the cache holds and says, beside its rows."""
        held, lengths = self.cache, [one[0].shape[1] for one in self.rows]
        padding = held.left_padding.tolist()
        end = held._idx
        real = [max(end - pad, 0) for pad in padding]
        if real != lengths or held.offset.tolist() != [end - pad for pad in padding]:
            yield f"{when}: {lengths} tokens are held as {real}, {held.offset.tolist()}"
            return
        if held.empty() or held.batch_size != len(lengths):
            yield f"{when}: it is said to have {held.batch_size} rows"
        alone = len(lengths) == 1
        if held.is_single_row() is not alone or held.fused_attention_eligible is not (
            alone and padding == [0]
        ):
            yield f"{when}: {len(lengths)} rows with the padding {padding} are read as one"
        bits = held.key_bits, held.value_bits
        for row, (both, pad) in enumerate(zip(self.rows, padding, strict=True)):
            expected = decoded([one[None] for one in both], bits, _SEED)
            for got, one in zip(held.dequantize(), expected, strict=True):
                if found := differs(got[row : row + 1, :, pad:], one, NOISE):
                    yield f"{when}: row {row} {found}"
        yield from self._said(when, end)

    def _said(self, when: str, end: int) -> Iterator[str]:
        held = self.cache
        state, masks, whole = held.state, held.left_padding.tolist(), (held.keys, held.values)
        parts = [turboquant._slice_state(one, end) for one in whole]
        # That it counts what is in use alone is a known defect of caches.
        sizes = [sum(one.nbytes for part in two for one in part) for two in (parts, whole)]
        if not sizes[0] <= held.nbytes <= sizes[1]:
            yield f"{when}: it has {held.nbytes} bytes, not {sizes[0]} to {sizes[1]}"
        pairs = (zip(*two, strict=True) for two in zip(state[:2], parts, strict=True))
        if any(a.shape != b.shape for one in pairs for a, b in one):
            yield f"{when}: its state is of another length"
        if state[2] is not held.offset or state[3] is not held.left_padding:
            yield f"{when}: its state has no positions"
        for window in (None, 3):
            got = np.array(held.make_mask(2, window_size=window))
            expected = causal_mask(2, end, window, [0] * len(masks), masks)
            if got.shape != expected.shape or (got != expected).any():
                yield f"{when}: a mask with the window {window} is another"


def _rows() -> Iterator[str]:
    for bits, parts in ((3.5, {}), (4, {"key_bits": 2}), (2, {"value_bits": 3})):
        batch = Rows([3, 0, 1], bits, **parts)
        if not batch.cache.empty() or batch.cache.nbytes != 0 or batch.cache._idx != 0:
            yield "a cache that is not fed is not empty"
        if batch.cache.dequantize_for_apc() != (None, None):
            yield "of nothing something is kept"
        # The first row has only padding in the first piece.
        for tokens in (2, 3, 1):
            yield from batch.feed(tokens)
            yield from batch.problems(f"{bits} bits, {tokens} tokens")
            held = batch.cache
            full = math.ceil(held._idx / STEP) * STEP if held._idx > 2 else 2
            if held.keys.norms.shape[2] != full or held.values.norms.shape[2] != full:
                yield f"{held._idx} tokens have room for {held.keys.norms.shape[2]}"
        yield from _taken_out(batch)
        yield from _trimmed(batch)
        yield from _chosen(batch)
    one = [turboquant.BatchTurboQuantKVCache(pad, 4) for pad in ([0], [1], [0, 0])]
    if [held.fused_attention_eligible for held in one] != [True, False, False]:
        yield "rows with padding, or two, are read as one"
    held = one[0]
    for _ in range(2):
        held.update_and_fetch(mx.zeros((1, 1, 2, 4)), mx.zeros((1, 1, 2, 4)))
    if held.keys.norms.shape != (1, 1, 256):
        yield f"by default there is room for {held.keys.norms.shape[2]}"
    if (held.key_bits, held.value_bits, held.seed, held.group_size) != (4, 4, 0, 64):
        yield "a cache's settings are others by default"


def _taken_out(batch: Rows) -> Iterator[str]:
    """A row alone, which does not hang on the batch any more."""
    held = batch.cache
    for row, both in enumerate(batch.rows):
        alone = held.extract(row)
        bits = held.key_bits, held.value_bits
        if (alone.key_bits, alone.value_bits, alone.seed) != (*bits, _SEED):
            yield f"row {row} alone has {alone.key_bits} and {alone.value_bits} bits"
        expected = decoded([one[None] for one in both], bits, _SEED)
        for got, one in zip(alone.dequantize(), expected, strict=True):
            if found := differs(got, one, NOISE):
                yield f"row {row} alone {found}"
        if alone.offset != both[0].shape[1] or alone.key_codec is not held.key_codec:
            yield f"row {row} alone has {alone.offset} tokens"
        alone.zero_row_tail(0, 0, 1)
    yield from batch.problems("after rows were taken out")
    for padding in ([0, 2], [1, 9]):
        other = Rows(padding, 4)
        if not other.cache.extract(1).empty():
            yield "of a batch without tokens there is a row"
        yield from other.feed(2)
        if not other.cache.extract(1).empty():
            yield "a row of padding alone has tokens"


def _trimmed(batch: Rows) -> Iterator[str]:
    held = batch.cache
    if not held.is_trimmable() or held.trim(1) != 1:
        yield "it is not trimmed"
    batch.rows = [[one[:, : one.shape[1] - 1] for one in both] for both in batch.rows]
    yield from batch.problems("trimmed")
    kept = [np.array(one) for one in held.dequantize_for_apc()]
    if any(differs(got, one, 0) for got, one in zip(held.dequantize(), kept, strict=True)):
        yield "what is kept of a batch is another"
    held.zero_row_tail(1, 1, 1)
    held.zero_row_tail(1, 2, 4)
    for one in kept:
        one[1, :, 2:4] = 0
    if any(differs(got, one, 0) for got, one in zip(held.dequantize(), kept, strict=True)):
        yield "another end of a row is cleared"
    for both in batch.rows[1:2]:
        for one in both:
            one[:, 2:4] = 0
    short = Rows([0], 4)
    yield from short.feed(2)
    if short.cache.trim(5) != 2 or short.cache._idx != 0:
        yield "more is trimmed than there is"
    if short.cache.dequantize_for_apc() != (None, None):
        yield "of a batch that is trimmed whole something is kept"


def _chosen(batch: Rows) -> Iterator[str]:
    """Rows in another order; columns that are padding in all of them are given up."""
    for order, padding in (([2, 0], [0, 2]), ([1], [0])):
        batch.cache.filter(mx.array(order))
        batch.rows = [batch.rows[row] for row in order]
        yield from batch.problems(f"rows {order} chosen")
        if batch.cache.left_padding.tolist() != padding:
            yield f"rows {order} have the padding {batch.cache.left_padding.tolist()}"
        yield from batch.feed(1)
        yield from batch.problems(f"rows {order} chosen, and a token")
    empty = turboquant.BatchTurboQuantKVCache([3, 1, 2], 4)
    empty.filter(mx.array([2, 0]))
    if (empty.left_padding.tolist(), empty.offset.tolist(), empty._idx) != ([2, 3], [-2, -3], 0):
        yield f"of an empty batch are left {empty.left_padding.tolist()}"
    part = Rows([3, 4], 4)
    yield from part.feed(2)
    part.cache.filter(mx.array([0]))
    if (part.cache.left_padding.tolist(), part.cache._idx) != ([1], 0):
        yield "of rows of padding columns are left"


def _joined() -> Iterator[str]:
    """Shorter beside longer, either way; two without tokens."""
    for first, second in itertools.product((1, 2, 5), (1, 4)):
        batch, other = Rows([1, 0], 3.5), Rows([0, 1, 2], 3.5, seed=20)
        for one, tokens in ((batch, first), (other, second)):
            yield from one.feed(tokens)
            # Then there is room for more tokens than there are.
            yield from one.feed(1)
        other_before = [other.cache._idx, other.cache.left_padding.tolist()]
        batch.cache.extend(other.cache)
        batch.rows += other.rows
        name = f"batches of {first} and {second} tokens joined"
        yield from batch.problems(name)
        if [other.cache._idx, other.cache.left_padding.tolist()] != other_before:
            yield f"{name}: the other is changed"
        yield from batch.feed(1)
        yield from batch.problems(f"{name}, and a token")
    # The positions alone: what arrays then hold is a known defect of caches.
    for fed_first in (False, True):
        empty, fed = turboquant.BatchTurboQuantKVCache([1], 3.5), Rows([0, 2], 3.5)
        yield from fed.feed(3)
        first, second = (fed.cache, empty) if fed_first else (empty, fed.cache)
        first.extend(second)
        said = first.offset.tolist(), first.left_padding.tolist(), first._idx
        wanted = ([3, 1, -1], [0, 2, 4], 3) if fed_first else ([-1, 3, 1], [4, 0, 2], 3)
        if said != wanted or first.keys is None or first.fused_attention_eligible:
            yield f"rows of 3 tokens and one without give {said}"
    empty = turboquant.BatchTurboQuantKVCache([0], 4)
    empty.extend(turboquant.BatchTurboQuantKVCache([3, 1], 4))
    said = empty.left_padding.tolist(), empty.offset.tolist(), empty.fused_attention_eligible
    if said != ([0, 3, 1], [0, -3, -1], False) or empty.keys is not None:
        yield f"two empty batches give {said}"


def _half_joined() -> Iterator[str]:
    """Rows of batches whose keys have half bits: other elements have more bits in each."""
    batch, other = (Rows([0], 3.5, seed=seed, key_bits=2.5) for seed in (0, 20))
    for one in (batch, other):
        yield from one.feed(3)
    apart = [[np.array(one) for one in each.cache.dequantize()] for each in (batch, other)]
    batch.cache.extend(other.cache)
    for got, *alone in zip(batch.cache.dequantize(), *apart, strict=True):
        if found := differs(got, np.concatenate(alone), 0):
            yield f"what rows of half bits hold when they are joined {found}"
