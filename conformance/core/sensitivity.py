"""How sensitive a model is to defects: the judgement, from numbers that a plugin measured.

A model whose output no defect changes proves nothing. So before a family is trusted, small defects
are put into its single stream, and the smallest change of its logprobs is compared with rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TOP = 20
"""Only the reference's most likely tokens count; unlikely ones are dominated by rounding."""

RATIO_NEEDED = 10.0
"""A family below this is not sensitive enough for any verdict; that is this project's defect."""
RATIO_WANTED = 1000.0
DISTINCT_WANTED = 6
REPEATS_ALLOWED = 4
LOGIT_STD = 3.0

# A logprob of size 10 has an ulp of 1e-6 in float32. A family whose rearrangements happen to be
# bitwise equal here will not be so on every device: at least ten roundings are assumed.
_NOISE_FLOOR = 1e-5

# No rounding in float32 was ever seen above 2.4e-4: a larger change is another computation.
_LARGEST_ROUNDING = 1e-3


@dataclass(frozen=True)
class Signal:
    """The change by one small defect.

    Attributes:
        kind: ``drop`` (an earlier token missing), ``shift`` (later positions off by one), ``slot``
            (one cache entry wrong) or ``media`` (another image, one of its tokens wrong).
        where: the token, position or cache entry.
        nats: the largest change of a logprob, over the reference's top tokens and all later steps.
    """

    kind: str
    where: str
    nats: float


@dataclass(frozen=True)
class Rounding:
    """The change by one harmless rearrangement of the single stream, in nats."""

    rearrangement: str
    nats: float


@dataclass(frozen=True)
class Sensitivity:
    """A family's measured sensitivity.

    Attributes:
        distinct: the number of different tokens in a greedy stream, of the least varied prompt.
        repeats: the longest run of one token in any greedy stream.
        logit_std: standard deviation of the logits over the vocabulary, mean over steps.
    """

    distinct: int
    repeats: int
    logit_std: float
    signals: tuple[Signal, ...]
    roundings: tuple[Rounding, ...]

    @property
    def noise(self) -> float:
        """The largest rounding, but at least what float32 is known to have, in nats."""
        benign = set(self.roundings) - set(self.disagreements)
        return max(_NOISE_FLOOR, max((rounding.nats for rounding in benign), default=0.0))

    @property
    def disagreements(self) -> tuple[Rounding, ...]:
        """Rearrangements that change far more than rounding can: a defect of the single stream."""
        return tuple(found for found in self.roundings if not found.nats <= _LARGEST_ROUNDING)

    @property
    def weakest(self) -> Signal:
        """The smallest signal; one that is not a finite number counts as zero."""
        return min(self.signals, key=lambda signal: _finite(signal.nats))

    @property
    def ratio(self) -> float:
        """Weakest signal over noise. Zero where nothing could be measured."""
        if not self.signals or not math.isfinite(self.noise):
            return 0.0
        return _finite(self.weakest.nats) / self.noise

    @property
    def varied(self) -> bool:
        """Whether greedy streams vary enough for token comparison to mean something."""
        return self.distinct >= DISTINCT_WANTED

    @property
    def score(self) -> float:
        """How good a recipe is, for choosing among recipes: 3 is all that is wanted."""
        strong = min(math.log10(max(self.ratio, 1.0)) / math.log10(RATIO_WANTED), 1.0)
        vary = min(self.distinct / DISTINCT_WANTED, REPEATS_ALLOWED / self.repeats, 1.0)
        # Half or double the aim is as good as the aim; far off, margins are all tiny or all huge.
        octaves = abs(math.log2(self.logit_std / LOGIT_STD)) if self.logit_std > 0 else math.inf
        return strong + vary + 1.0 / max(octaves, 1.0)

    @property
    def sensitive(self) -> bool:
        """Whether a defect stands out from rounding by the factor that is needed."""
        return self.ratio >= RATIO_NEEDED


def _finite(nats: float) -> float:
    return nats if math.isfinite(nats) else 0.0


def change(
    reference: npt.NDArray[np.float64], other: npt.NDArray[np.float64], *, top: int = TOP
) -> float:
    """The largest change of a logprob over the reference's ``top`` tokens of each step, in nats.

    NaN on either side gives NaN.

    Shapes:
        reference, other: ``[steps, vocab]``, logprobs.
    """
    assert reference.shape == other.shape, "both runs have the same steps"
    best = np.argsort(-reference, axis=-1, kind="stable")[:, :top]
    before = np.take_along_axis(reference, best, axis=-1)
    after = np.take_along_axis(other, best, axis=-1)
    return float(np.abs(before - after).max())


def longest_repeat(tokens: tuple[int, ...]) -> int:
    """The length of the longest run of one token."""
    longest = run = 0
    for index, token in enumerate(tokens):
        run = run + 1 if index and token == tokens[index - 1] else 1
        longest = max(longest, run)
    return longest


def combine(parts: tuple[Sensitivity, ...]) -> Sensitivity:
    """Several prompts as one: of each signal the weakest, of each rounding the largest."""
    signals: dict[tuple[str, str], Signal] = {}
    roundings: dict[str, Rounding] = {}
    for part in parts:
        for signal in part.signals:
            known = signals.setdefault((signal.kind, signal.where), signal)
            if _finite(signal.nats) < _finite(known.nats):
                signals[signal.kind, signal.where] = signal
        for rounding in part.roundings:
            before = roundings.setdefault(rounding.rearrangement, rounding)
            if not rounding.nats <= before.nats:
                roundings[rounding.rearrangement] = rounding
    return Sensitivity(
        distinct=min(part.distinct for part in parts),
        repeats=max(part.repeats for part in parts),
        logit_std=float(np.mean([part.logit_std for part in parts])),
        signals=tuple(signals.values()),
        roundings=tuple(roundings.values()),
    )
