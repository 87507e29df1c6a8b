"""The last logits processor of each request: records logprobs, and chooses where it is asked to."""

import mlx.core as mx
import numpy as np

from conformance.backend.sampling import ForcedSampler
from conformance.plugins.mlx_lm.sampling import make_sampler

_OWN = frozenset({"seeded", "rank"})


def chooser(submission, sampler):
    """What chooses the request's tokens in place of the engine; ``None``: the engine does.

    Samplers that the engine has no parameters for are given to it as a processor.
    """
    if submission.forced:
        return ForcedSampler(submission.forced)
    return make_sampler(sampler) if sampler is not None and sampler.kind in _OWN else None


class Recorder:
    """Sees the logits of a row, step by step; one for each request."""

    def __init__(self, choose):
        self._choose = choose
        self._rows = []

    def __call__(self, tokens, logits):
        """Logits ``[1, vocab]`` in and out: as they are, or so that one token is left."""
        logprobs = logits.astype(mx.float32)
        logprobs = logprobs - mx.logsumexp(logprobs, axis=-1, keepdims=True)
        self._rows.append(logprobs)
        if self._choose is None:
            return logits
        chosen = self._choose(logprobs)
        others = mx.arange(logits.shape[-1])[None] != chosen[:, None]
        return mx.where(others, mx.array(-mx.inf, logits.dtype), mx.array(0, logits.dtype))

    def logprobs(self, step):
        """Of the token of that step, float32 ``[vocab]``; frees it."""
        row, self._rows[step] = self._rows[step], None
        return np.array(row.reshape(-1))
