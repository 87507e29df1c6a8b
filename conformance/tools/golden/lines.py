"""Makes a golden's lines from arrays: the kept part of a single stream, rounded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.core import numerics
from conformance.core.errors import GoldenError
from conformance.core.schedule import Request
from conformance.tools.golden.format import Recorded

TOP = 8
"""The number of tokens at each step whose logprobs are kept."""

# Rounding to 5e-8 nats is at most a fifth of the smallest noise that is ever assumed, two ulps of
# float32 at 1. Seven significant digits would not suffice: they round a logprob of -12 by 5e-6.
_DECIMALS = 7


def record(
    request: Request, tokens: Sequence[int], logprobs: np.ndarray, noise: np.ndarray
) -> Recorded:
    """One line of a golden.

    Shapes:
        logprobs: ``[len(tokens), vocab]``, nats; noise: ``[len(tokens)]``, nats.

    Raises:
        GoldenError: a kept number is not finite.
    """
    logprobs = logprobs.astype(np.float64)
    top = np.argsort(-logprobs, axis=-1, kind="stable")[:, :TOP]
    kept = np.take_along_axis(logprobs, top, axis=-1)
    if np.isnan(logprobs).any() or not np.isfinite(kept).all():
        step = int(np.argmax(np.isnan(logprobs).any(axis=-1) | ~np.isfinite(kept).all(axis=-1)))
        raise GoldenError(f"request {request.request_id!r}: logprobs at step {step} are not finite")
    return Recorded(
        request=request,
        tokens=tuple(int(token) for token in tokens),
        margins=tuple(_figures(value) for value in numerics.margins(logprobs)),
        noise=tuple(_figures(value) for value in noise[: len(tokens)]),
        top=tuple(
            tuple(
                (int(i), round(float(v), _DECIMALS) + 0.0) for i, v in zip(ids, values, strict=True)
            )
            for ids, values in zip(top, kept, strict=True)
        ),
    )


def _figures(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")
