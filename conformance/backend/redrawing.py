"""Compares a library's sampler with a second implementation, using the same random numbers.

A batch and a single stream share no random numbers, so their sampled tokens differ. Here the
sampler draws from a batch's logprobs, and its tokens are compared with a second implementation of
the rules for each row, in mlx-vlm's order: deviations, collision, typical, then those that mlx-lm
has, too, in the same order: nucleus, least share, XTC and top-k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from conformance.backend.sampling import SamplerFn
from conformance.core.trace import Claim

# Draws from the logprobs of each row, by call in turn: a filter that keeps one token too many shows
# in few of them, and one that is wrong for a number of rows only in calls with as many.
_DRAWS = (16, 133, 5, 3)
# Filters that compute with all tokens of a row.
_OF_ALL = {"top_n_sigma", "p_less", "typical_p"}


class ComparedSampler:
    """Takes the likeliest token, so that a batch is comparable, and records the drawn tokens.

    Args:
        library: the library's sampler, with random numbers of mlx's own state.
        args: the sampler's arguments, by the library's names.
    """

    def __init__(self, library: SamplerFn, args: Mapping[str, Any]) -> None:
        self._library = library
        self._args = args
        self._calls = 0
        self._drawn: list[tuple[mx.array, mx.array]] = []

    def __call__(self, logprobs: mx.array) -> mx.array:
        """The likeliest tokens ``[rows]`` of logprobs ``[rows, vocab]``."""
        self._calls += 1
        # Where removals are no matter of rank, ties are left: removed tokens have no deviation.
        untied = logprobs if self._args.keys() & _OF_ALL else _untied(logprobs)
        given = mx.repeat(untied, _DRAWS[self._calls % len(_DRAWS)], axis=0)
        mx.random.seed(self._calls)
        theirs = self._library(given)
        mx.random.seed(self._calls)
        shape = logprobs.shape[0], -1
        both = theirs, drawn_by_rules(given, self._args)
        self._drawn.append((both[0].reshape(shape), both[1].reshape(shape)))
        return mx.argmax(logprobs, axis=-1)

    def drawn(self) -> list[tuple[list[int], list[int]]]:
        """For each call since the last time, the rows' tokens by the library and by the rules.

        Of a call's draws, the first in which a row's token differs.
        """
        found = [_first_apart(_table(mine), _table(again)) for mine, again in self._drawn]
        self._drawn.clear()
        return found

    @staticmethod
    def claim(mine: list[int], again: list[int]) -> Claim:
        """The engine's claim that a call drew by the rules."""
        return Claim(
            "tokens drawn with the same random numbers", str(mine), str(again), mine == again
        )


def _untied(logprobs: mx.array) -> mx.array:
    """Keep one of equally likely tokens, as it is undefined which of them a filter keeps."""
    order = mx.argsort(logprobs, axis=-1)
    rising = mx.take_along_axis(logprobs, order, axis=-1)
    again = mx.concatenate([mx.zeros_like(order[:, :1]) > 0, rising[:, 1:] == rising[:, :-1]], -1)
    return _removed(logprobs, mx.put_along_axis(mx.zeros_like(again), order, again, axis=-1))


def _table(drawn: mx.array) -> npt.NDArray[np.int64]:
    """``[draws, rows]``."""
    return np.array(drawn).astype(np.int64).T


def _first_apart(
    mine: npt.NDArray[np.int64], again: npt.NDArray[np.int64]
) -> tuple[list[int], list[int]]:
    draw = int((mine != again).any(axis=1).argmax())
    return mine[draw].tolist(), again[draw].tolist()


def drawn_by_rules(logprobs: mx.array, args: Mapping[str, Any]) -> mx.array:
    """One token for each row of logprobs ``[rows, vocab]``: ``[rows]``.

    Args:
        args: ``temp``, ``top_n_sigma``, ``p_less``, ``typical_p``, ``top_p``, ``min_p``,
            ``min_tokens_to_keep``, ``xtc_probability``, ``xtc_threshold``, ``xtc_special_tokens``,
            ``top_k``; a filter without its own is off.
    """
    left = logprobs  # -inf where a token was removed
    if args.get("top_n_sigma"):
        wide = left.astype(mx.float32)  # a deviation in bfloat16 is too coarse to draw a line by
        far = args["top_n_sigma"] * mx.std(wide, axis=-1, keepdims=True)
        left = _removed(left, wide < wide.max(axis=-1, keepdims=True) - far)
    if args.get("p_less"):
        probs = mx.softmax(left / args["temp"], axis=-1)
        left = _removed(left, probs < (probs**2).sum(axis=-1, keepdims=True))
    if args.get("typical_p"):
        left = _typical(left, args["typical_p"])
    if 0 < args.get("top_p", 0) < 1:
        left = _nucleus(left, args["top_p"])
    if args.get("min_p"):
        left = _least_share(left, args["min_p"], args.get("min_tokens_to_keep", 1))
    if args.get("xtc_probability"):
        left = _without_likely(left, args)
    if args.get("top_k"):
        left = _removed(left, left < _at_rank(left, args["top_k"]))
    return mx.random.categorical(left * (1.0 / args["temp"]))


def _typical(left: mx.array, share: float) -> mx.array:
    """Keep the fewest tokens with surprise closest to the entropy that have this share."""
    probs = mx.exp(left)
    away = mx.abs(left - (probs * left).sum(axis=-1, keepdims=True))
    order = mx.argsort(away, axis=-1)
    nearer = mx.cumsum(mx.take_along_axis(probs, order, axis=-1), axis=-1, inclusive=False)
    return _removed(left, mx.put_along_axis(mx.zeros_like(left), order, nearer, axis=-1) >= share)


def _nucleus(left: mx.array, share: float) -> mx.array:
    """Keep the fewest of the likeliest tokens that have this share of the probability."""
    falling = mx.sort(left, axis=-1)[:, ::-1]  # [rows, vocab]
    probs = mx.exp(falling.astype(mx.float32))
    sums = mx.cumsum(probs, axis=-1)
    stay = (sums - probs) < share * sums[:, -1:]
    edge = mx.take_along_axis(falling, stay.sum(axis=-1, keepdims=True) - 1, axis=-1)
    return _removed(left, left < edge)


def _least_share(left: mx.array, share: float, least: int) -> mx.array:
    """Keep tokens with this share of the likeliest's probability, but at least ``least``."""
    low = left < left.max(axis=-1, keepdims=True) + math.log(share)
    return _removed(left, low & (left < _at_rank(left, least)))


def _without_likely(left: mx.array, args: Mapping[str, Any]) -> mx.array:
    """At random, remove all tokens above the threshold except the least likely of them."""
    probs = mx.softmax(left, axis=-1)
    likely = probs > args.get("xtc_threshold", 0.1)
    least = mx.where(likely, probs, mx.inf).min(axis=-1, keepdims=True)
    special = mx.array(args.get("xtc_special_tokens", ()), mx.int32)
    spared = (mx.arange(left.shape[-1])[:, None] == special[None]).any(axis=-1)  # [vocab]
    filtered = _removed(left, (probs > least) & ~spared)
    return mx.where(mx.random.uniform() > args["xtc_probability"], left, filtered)


def _at_rank(left: mx.array, count: int) -> mx.array:
    """The logprob of the ``count``-th likeliest token, ``[rows, 1]``."""
    return mx.sort(left, axis=-1)[:, ::-1][:, count - 1 : count]


def _removed(left: mx.array, which: mx.array) -> mx.array:
    return mx.where(which, mx.array(-mx.inf, left.dtype), left)
