"""The tokens that a sampler's filter keeps, by its definition in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rule = Callable[..., np.ndarray]


def order(logprobs: np.ndarray) -> np.ndarray:
    """The rank of each token, 0 for the likeliest."""
    return np.argsort(np.argsort(-logprobs, axis=-1), axis=-1)


def top_k(logprobs: np.ndarray, k: int) -> np.ndarray:
    """The ``k`` likeliest tokens."""
    return order(logprobs) < k


def min_p(logprobs: np.ndarray, share: float, least: int = 1) -> np.ndarray:
    """Tokens with this share of the likeliest's probability, and the ``least`` likeliest."""
    best = logprobs.max(-1, keepdims=True)
    return np.asarray(np.exp(logprobs - best) >= share) | (order(logprobs) < least)


def top_p(logprobs: np.ndarray, share: float) -> np.ndarray:
    """The fewest of the likeliest tokens that have this share of the probability."""
    probs = np.exp(logprobs.astype(np.float64))
    probs /= probs.sum(-1, keepdims=True)
    above = (probs[..., None, :] * (probs[..., None, :] > probs[..., :, None])).sum(-1)
    return np.asarray(above < share)


def top_n_sigma(logits: np.ndarray, count: float) -> np.ndarray:
    """Tokens within ``count`` standard deviations of the largest logit."""
    wide = logits.astype(np.float64)
    least = wide.max(-1, keepdims=True) - count * wide.std(-1, keepdims=True)
    return np.asarray(wide >= least)


def p_less(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Tokens at least as likely as two draws being equal."""
    probs = np.exp(logits.astype(np.float64) / temperature)
    probs /= probs.sum(-1, keepdims=True)
    return np.asarray(probs >= (probs**2).sum(-1, keepdims=True))


def typical_p(logprobs: np.ndarray, share: float) -> np.ndarray:
    """The fewest tokens with surprise closest to the entropy that have this share."""
    wide = logprobs.astype(np.float64)
    probs = np.exp(wide)
    away = np.abs(-wide + (probs * wide).sum(-1, keepdims=True))
    nearer = (probs[..., None, :] * (away[..., None, :] < away[..., :, None])).sum(-1)
    return np.asarray(nearer < share)
