"""Compares the logits of two implementations."""

from __future__ import annotations

import numpy as np

from conformance.core import numerics
from conformance.core.numerics import Envelope
from conformance.power.transformers_check.check_results import Reading

# Bounds the ratio of a difference to its noise. Implementations that agree stay below 1.6; an
# epsilon of 1e-5 in place of 1e-6, the smallest defect found, gives 3.5 and more (see
# docs/verification.md).
LIMIT = 2.5


def logprobs(logits: np.ndarray) -> np.ndarray:
    """Logprobs in float32, normalised in float64; the last axis is the vocabulary."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    normal = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return np.asarray(normal, dtype=np.float32)


def noise(
    runs: np.ndarray, base: np.ndarray, want: np.ndarray, exact: np.ndarray | None
) -> Envelope:
    """The differences between both sides that rounding alone may cause.

    They are the effects of perturbing the library's layers, and of float32 on the other side.

    Shapes:
        runs: ``[runs, places, vocab]``, logprobs of perturbed passes of the library.
        base: ``[places, vocab]``, the same unperturbed.
        want, exact: ``[places, vocab]``, the other side's logprobs in float32 and in float64.
    """
    every = runs if exact is None else np.concatenate([runs, (base + (exact - want))[None]])
    return numerics.envelope_of(every, base, floor=numerics.floor("float32", want))


def last(envelope: Envelope, count: int) -> Envelope:
    """The noise of the last ``count`` places."""
    return Envelope(envelope.top[-count:], envelope.full[-count:], envelope.floor)


def read(got: np.ndarray, want: np.ndarray, envelope: Envelope) -> Reading:
    """The difference of ``got`` from ``want``, both logprobs ``[places, vocab]``."""
    found = numerics.deviation(got, want, envelope)
    bad = found.ratio > LIMIT
    return Reading(
        ratio=_number(found.ratio.max()),
        difference=_number(found.difference.max()),
        noise=_number(envelope.full.max()),
        place=int(bad.argmax()) if bad.any() else None,
    )


def _number(value: np.floating) -> float:
    return float(f"{float(value):.3g}")
