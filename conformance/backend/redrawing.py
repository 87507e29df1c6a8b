"""Compares a library's sampler with a second implementation, using the same random numbers.

A batch and a single stream share no random numbers, so their sampled tokens differ. Here the
sampler draws from a batch's logprobs, and its tokens are compared with a second implementation of
the rules for each row: nucleus, least share, XTC and top-k, in mlx-lm's order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from conformance.backend.sampling import SamplerFn

# Draws from the logprobs of each row: a filter that keeps one token too many shows in few of them.
_DRAWS = 16


class ComparedSampler:
    """Takes the likeliest token, so that a batch is comparable, and records the drawn tokens.

    Args:
        library: the library's sampler, with random numbers of mlx's own state.
        args: the sampler's arguments, by mlx-lm's names.
    """

    def __init__(self, library: SamplerFn, args: Mapping[str, Any]) -> None:
        self._library = library
        self._args = args
        self._calls = 0
        self._drawn: list[tuple[mx.array, mx.array]] = []

    def __call__(self, logprobs: mx.array) -> mx.array:
        """The likeliest tokens ``[rows]`` of logprobs ``[rows, vocab]``."""
        self._calls += 1
        given = mx.repeat(_untied(logprobs), _DRAWS, axis=0)
        mx.random.seed(self._calls)
        theirs = self._library(given)
        mx.random.seed(self._calls)
        self._drawn.append((theirs, drawn_by_rules(given, self._args)))
        return mx.argmax(logprobs, axis=-1)

    def drawn(self) -> list[tuple[list[int], list[int]]]:
        """For each call since the last time, the rows' tokens by the library and by the rules.

        Of a call's draws, the first in which a row's token differs.
        """
        found = [_first_apart(_table(mine), _table(again)) for mine, again in self._drawn]
        self._drawn.clear()
        return found


def _untied(logprobs: mx.array) -> mx.array:
    """Keep one of equally likely tokens, as it is undefined which of them a filter keeps."""
    order = mx.argsort(logprobs, axis=-1)
    rising = mx.take_along_axis(logprobs, order, axis=-1)
    again = mx.concatenate([mx.zeros_like(order[:, :1]) > 0, rising[:, 1:] == rising[:, :-1]], -1)
    return _removed(logprobs, mx.put_along_axis(mx.zeros_like(again), order, again, axis=-1))


def _table(drawn: mx.array) -> npt.NDArray[np.int64]:
    """``[draws, rows]``."""
    return np.array(drawn).astype(np.int64).reshape(-1, _DRAWS).T


def _first_apart(
    mine: npt.NDArray[np.int64], again: npt.NDArray[np.int64]
) -> tuple[list[int], list[int]]:
    draw = int((mine != again).any(axis=1).argmax())
    return mine[draw].tolist(), again[draw].tolist()


def drawn_by_rules(logprobs: mx.array, args: Mapping[str, Any]) -> mx.array:
    """One token for each row of logprobs ``[rows, vocab]``: ``[rows]``.

    Args:
        args: ``temp``, ``top_p``, ``min_p``, ``min_tokens_to_keep``, ``xtc_probability``,
            ``xtc_threshold``, ``xtc_special_tokens``, ``top_k``; a filter without its own is off.
    """
    left = logprobs  # -inf where a token was removed
    if 0 < args.get("top_p", 0) < 1:
        left = _nucleus(left, args["top_p"])
    if args.get("min_p"):
        left = _least_share(left, args["min_p"], args.get("min_tokens_to_keep", 1))
    if args.get("xtc_probability"):
        left = _without_likely(left, args)
    if args.get("top_k"):
        left = _removed(left, left < _at_rank(left, args["top_k"]))
    return mx.random.categorical(left * (1.0 / args["temp"]))


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
