"""When is a difference rounding? Envelopes, margins and ratios; arrays in, numbers out.

An envelope is, for each step, how far rounding alone may move a right output. It is measured
(``reference/oracle.py``), never assumed; this module has only the arithmetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# A difference counts when it leaves the envelope by this factor at any step. Benign runs stayed
# below 2 with 8 perturbed runs of one ulp; defects began at 12 (see FACTS and `audit bench`).
FACTOR = 4.0
# ... or when it leaves the envelope by this much in at least this share of the steps, 3 at least.
WIDE_FACTOR = 2.0
WIDE_SHARE = 0.5
WIDE_STEPS = 3

# Up to this factor the known noise explains a difference, and no more of it is measured.
# A benign difference of more than this shows that the noise is too small: a floor, or few runs.
ENOUGH = 2.0
# ... or up to this one if few runs are known: a larger difference is compared with more runs, so
# that a ratio above it always uses the usual noise.
ENOUGH_OF_FEW = 1.0
# The largest noise of other rows, in nats, with which a row is judged without one of its own.
TYPICAL = 5e-4
# A difference of more than this many times the noise is not rounding, however many runs are made.
HOPELESS = 1000.0

# Tokens of the oracle's distribution over which the sensitive measure looks. Over the whole
# vocabulary unlikely tokens dominate.
TOP = 20

_EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Envelope:
    """Noise for each step, in nats.

    Attributes:
        top: float32 ``[steps]``, over the oracle's most likely tokens.
        full: float32 ``[steps]``, over the whole vocabulary.
        floor: no step's noise is smaller than this.
        measured: ``False`` if only the floor is known, which was enough.
        few: it is from fewer runs than usual, so that a right output may leave it.
    """

    top: np.ndarray
    full: np.ndarray
    floor: float
    measured: bool = True
    few: bool = False

    @property
    def usual(self) -> bool:
        """Whether it is from as many runs as usual, or more."""
        return self.measured and not self.few

    def wider_by(self, other: Envelope) -> Envelope:
        """The largest noise of both, in as many steps as ``other`` has."""
        steps = len(other.top)
        return dataclasses.replace(
            other,
            top=np.maximum(self.top[:steps], other.top),
            full=np.maximum(self.full[:steps], other.full),
        )


@dataclass(frozen=True)
class Deviation:
    """How far a forced run is from the oracle.

    Attributes:
        difference: float32 ``[steps]``, largest absolute logprob difference over the vocabulary.
        ratio: float32 ``[steps]``, the worse of top and full difference over their noise.
        worst_step: step of the largest ratio.
        first_bad_step: the first step that counts as wrong, or ``None``.
    """

    difference: np.ndarray
    ratio: np.ndarray
    worst_step: int
    first_bad_step: int | None

    @property
    def within_noise(self) -> bool:
        """Whether rounding explains all of it."""
        return self.first_bad_step is None

    def explained(self, noise: Envelope) -> bool:
        """Whether ``noise``, by which it was judged, explains all of it, with room to spare."""
        enough = ENOUGH_OF_FEW if noise.few else ENOUGH
        return self.within_noise and float(self.ratio.max()) <= enough

    @property
    def hopeless(self) -> bool:
        """Whether no further runs of the noise can explain it."""
        return not self.within_noise and float(self.ratio.max()) > HOPELESS


def floor(dtype: str, logprobs: np.ndarray) -> float:
    """Smallest noise to assume: two units in the last place of the largest likely logprob.

    Shapes:
        logprobs: ``[steps, vocab]``.
    """
    finite = logprobs[np.isfinite(logprobs)]
    scale = float(np.quantile(np.abs(finite), 0.9)) if finite.size else 1.0
    return 2.0 * _EPS[dtype] * max(scale, 1.0)


def margins(logprobs: np.ndarray) -> np.ndarray:
    """Top-1 minus top-2 logprob at each step.

    Shapes:
        ``[steps, vocab]`` in, ``[steps]`` out, nats.
    """
    top = np.partition(logprobs, -2, axis=-1)[:, -2:]
    return np.asarray(top[:, 1] - top[:, 0])


def top_tokens(logprobs: np.ndarray, count: int = TOP) -> np.ndarray:
    """The most likely tokens of each step: ``[steps, vocab]`` in, ``[steps, count]`` out."""
    count = min(count, logprobs.shape[-1])
    return np.argpartition(-logprobs, count - 1, axis=-1)[:, :count]


def differences(
    got: np.ndarray, want: np.ndarray, top: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Largest absolute difference of each step, over the tokens ``top`` and over all.

    A logprob that is minus infinity on both sides (a masked token) does not differ; on one side
    only, or NaN on any, it differs infinitely.

    Shapes:
        got, want: ``[steps, vocab]``; top: ``[steps, count]``; both results ``[steps]``.
    """
    with np.errstate(invalid="ignore"):
        delta = np.abs(got - want)
    delta = np.where(got == want, 0.0, np.where(np.isnan(delta), np.inf, delta))
    return np.take_along_axis(delta, top, axis=-1).max(axis=-1), delta.max(axis=-1)


def envelope_of(runs: np.ndarray, base: np.ndarray, *, floor: float, few: bool = False) -> Envelope:
    """The envelope from perturbed runs.

    The distance of ``base`` from the oracle is left out on purpose: if a model is wrong without a
    cache, that would not be noise, and it would hide errors in a batch.

    A token that is masked (minus infinity) in only one of the two is left out as well: an infinite
    noise would hide everything.

    Args:
        runs: ``[runs, steps, vocab]``, perturbed.
        base: ``[steps, vocab]``, the same computation unperturbed.
    """
    runs = np.where(np.isfinite(runs) & np.isfinite(base), runs, base)
    top = top_tokens(base)
    pairs = [differences(run, base, top) for run in runs]
    return Envelope(
        top=np.maximum(np.max([pair[0] for pair in pairs], axis=0), floor),
        full=np.maximum(np.max([pair[1] for pair in pairs], axis=0), floor),
        floor=floor,
        few=few,
    )


def flat_envelope(steps: int, floor: float) -> Envelope:
    """The floor at every step: enough if nothing moved further."""
    level = np.full(steps, floor, np.float32)
    return Envelope(level, level, floor, measured=False)


def typical_envelope(steps: int, measured: Sequence[Envelope]) -> Envelope | None:
    """The median noise of the measured row with the least noise, at every step.

    It counts as from few runs. ``None`` if nothing was measured, or if it is so large that it could
    hide something in a row with less: where experts flip, most steps of a row move by nats.
    """
    if not measured:
        return None
    near, whole = (
        min(float(np.median(levels)) for levels in each)
        for each in zip(*((one.top, one.full) for one in measured), strict=True)
    )
    if max(near, whole) > TYPICAL:
        return None
    top, full = (np.full(steps, level, np.float32) for level in (near, whole))
    return Envelope(top, full, max(one.floor for one in measured), few=True)


def deviation(got: np.ndarray, want: np.ndarray, envelope: Envelope) -> Deviation:
    """Judge a forced run's logprobs against the oracle's.

    Shapes:
        got, want: ``[steps, vocab]``; the envelope has at least as many steps.
    """
    steps = len(got)
    near, full = differences(got, want, top_tokens(want))
    with np.errstate(invalid="ignore"):
        ratio = np.maximum(near / envelope.top[:steps], full / envelope.full[:steps])
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    bad = ratio > FACTOR
    wide = ratio > WIDE_FACTOR
    if wide.sum() >= max(WIDE_STEPS, WIDE_SHARE * steps):
        bad |= wide
    return Deviation(
        difference=full,
        ratio=ratio,
        worst_step=int(ratio.argmax()),
        first_bad_step=int(bad.argmax()) if bad.any() else None,
    )


def settle(
    deviate: Callable[[Envelope], Deviation],
    floor: Envelope,
    wider: Sequence[Callable[[], Envelope]],
) -> tuple[Deviation, Envelope]:
    """The deviation under the first envelope that explains it, else under the last that might.

    Each of ``wider`` costs model runs, from few to many: the effect of a routing flip is seen in
    some runs, not in all. A difference within ``FACTOR``, but not well within, needs more runs,
    too, so that the reported ratio is over its noise, not over a floor. NaN is beyond any noise.
    """
    noise, found = floor, deviate(floor)
    for more in wider:
        hopeless = noise.usual and found.hopeless
        if found.explained(noise) or hopeless or not np.isfinite(found.ratio).all():
            break
        noise = more()
        found = deviate(noise)
    return found, noise
