"""A toy model: the next token's distribution is a function of all tokens before it.

So whatever an engine gets wrong about a row (tokens, order, positions) shows in its next logprobs.
"""

import functools
import time

import numpy as np

from conformance.core.phases import ForwardCall

VOCAB = 32


class ToyModel:
    """Has no weights; ``calls`` is its meter.

    Args:
        tied: the two likeliest tokens of each step are one unit in the last place apart.
    """

    def __init__(self, *, tied=False):
        self.tied = tied
        self.calls: list[ForwardCall] = []

    def __call__(self, rows, *, length=1, offsets=None, bound=None):
        """Logits ``[rows, VOCAB]`` after the last token of each row.

        Args:
            rows: all tokens of each row, the ``length`` new ones included.
            offsets: how many tokens the model assumes a row to have; by default as many as it has.
            bound: only the last so many tokens are seen.
        """
        start = time.perf_counter()
        offsets = offsets or [len(row) for row in rows]
        logits = np.stack(
            [
                _logits(tuple(row[-bound:] if bound else row), offset, self.tied)
                for row, offset in zip(rows, offsets, strict=True)
            ]
        )
        self.calls.append(ForwardCall(len(rows), length, time.perf_counter() - start))
        return logits


@functools.lru_cache(maxsize=200_000)
def _logits(tokens, offset, tied):
    rng = np.random.default_rng((*tokens, 1000 + offset))
    logits = (2.0 * rng.standard_normal(VOCAB)).astype(np.float32)
    if tied:
        first, second = np.argsort(logits)[[-1, -2]]
        logits[second] = np.nextafter(logits[first], np.float32(-np.inf))
    logits.flags.writeable = False
    return logits


def normalise(logits):
    """Logprobs of logits, float32, over the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return (logits - top - total).astype(np.float32)
