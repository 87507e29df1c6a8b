"""The tokens that a library's filters may leave to sample from, given noisy logprobs.

The filters are those of mlx_lm/sample_utils.py for one row: top-p, min-p, XTC, top-k, in that
order; and the project's own samplers, by rank and with seeded random numbers. Anything unknown here
(other random numbers, other filters) forbids no token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.core.token_choice import RANDOM, Sampler, random_scores

_KNOWN = {"temp", "top_p", "min_p", "xtc_probability", "xtc_threshold", "top_k", "rank"}


def drawable(sampler: Sampler, logprobs: np.ndarray, noise: float, step: int = 0) -> np.ndarray:
    """Whether each token may be sampled as output token ``step``, bool ``[vocab]``.

    Args:
        logprobs: ``[vocab]``; each may be off by ``noise`` nats, so two of them by twice that.
    """
    args = sampler.args
    if sampler.kind == "seeded":
        return _seeded(logprobs, args, 2 * noise, step)
    if sampler.kind not in ("library", RANDOM, "rank") or set(args) - _KNOWN:
        return np.ones(logprobs.shape, bool)
    slack = 2 * noise
    if sampler.kind == "rank":
        return _ranked(logprobs, int(args["rank"]), slack)
    left = _Left(logprobs.astype(np.float64), np.isfinite(logprobs), np.isfinite(logprobs))
    if not args.get("temp"):
        return _top_k(left, 1, slack).maybe
    if 0 < args.get("top_p", 0) < 1:
        left = _top_p(left, args["top_p"], slack)
    if args.get("min_p"):
        left = _min_p(left, args["min_p"], slack)
    if args.get("xtc_probability"):
        left = _xtc(left, args, slack)
    if args.get("top_k"):
        left = _top_k(left, int(args["top_k"]), slack)
    return left.maybe


@dataclass(frozen=True)
class _Left:
    """``maybe`` are the tokens that may remain, ``surely`` those that do; all ``[vocab]``."""

    logprobs: np.ndarray
    maybe: np.ndarray
    surely: np.ndarray

    def only(self, maybe: np.ndarray, surely: np.ndarray) -> _Left:
        return _Left(self.logprobs, self.maybe & maybe, self.surely & surely)


def _ranked(logprobs: np.ndarray, rank: int, slack: float) -> np.ndarray:
    """Tokens at least as likely as the token of this ``rank``, within the noise."""
    chosen = np.sort(logprobs)[-1 - rank]
    near: np.ndarray = np.abs(logprobs - chosen) <= slack
    return near


def _seeded(logprobs: np.ndarray, args: Mapping[str, float], slack: float, step: int) -> np.ndarray:
    """Tokens whose sum of logprob and random number is the largest, within the noise."""
    scale = 1.0 / args["temperature"]
    scores = logprobs * scale + random_scores(int(args["seed"]), step, len(logprobs))
    near: np.ndarray = scores >= scores.max() - slack * scale
    return near


def _top_p(left: _Left, share: float, slack: float) -> _Left:
    """A token is removed if the tokens above it have that share of the probability."""
    values = left.logprobs
    probs = np.exp(values) / np.exp(values).sum()
    # [vocab]: the probability surely above each token, and the most that may be.
    least = _beyond(values, probs, values + slack) * np.exp(-slack)
    most = (_beyond(values, probs, values - slack) - probs) * np.exp(slack)
    return left.only(least < share, most < share)


def _min_p(left: _Left, share: float, slack: float) -> _Left:
    edge = left.logprobs.max() + np.log(share)
    return left.only(left.logprobs >= edge - slack, left.logprobs >= edge + slack)


def _xtc(left: _Left, args: Mapping[str, float], slack: float) -> _Left:
    """All tokens above the threshold are removed, except the least likely of them."""
    values = left.logprobs
    if (left.maybe != left.surely).any():
        # The probability of each token among the remaining ones is not known.
        return left.only(left.maybe, np.zeros_like(left.surely))
    scale = np.log(np.exp(values[left.maybe]).sum())
    edge = np.log(args.get("xtc_threshold", 0.1)) + scale
    above, around = left.surely & (values > edge + slack), left.maybe & (values > edge - slack)
    stays = ~around
    if args["xtc_probability"] < 1 or not above.any():
        return left.only(np.ones_like(above), stays)
    least = values[above].min()
    # If only one token can be the least likely, it surely stays.
    if (around & (values <= least + slack)).sum() == 1:
        stays = stays | (above & (values == least))
    return left.only(values <= least + slack, stays)


def _top_k(left: _Left, count: int, slack: float) -> _Left:
    values = left.logprobs
    above = _beyond(values, left.surely, values + slack)
    beside = _beyond(values, left.maybe, values - slack)
    return left.only(above < count, beside <= count)


def _beyond(values: np.ndarray, weights: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For each of ``edges``, the weight of all ``values`` above it; all ``[vocab]``."""
    order = np.argsort(values)
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    below = np.searchsorted(values[order], edges, side="right")
    return np.asarray(sums[-1] - sums[below])
