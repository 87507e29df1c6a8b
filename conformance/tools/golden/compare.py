"""Compares a golden with the logprobs of a run that was fed its tokens. Arrays in, data out.

Floats are never compared for equality: a difference counts if it exceeds the noise
(``numerics.deviation``), a different token if noise cannot explain its margin. This lets a golden
hold on other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.core import numerics
from conformance.core.errors import GoldenError
from conformance.core.numerics import Deviation, Envelope
from conformance.tools.golden.format import Recorded

# The unit roundoff of float32, the dtype of goldens.
_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Comparison:
    """One request of a golden compared with a run.

    Attributes:
        recorded: the golden's line.
        deviation: of the logprobs of the golden's most likely tokens.
        chosen: the most likely token of each step now.
        turned: the first step with another token although its margin exceeds the noise.
        steps: how many could be compared; fewer than the golden's if the run ended early.
        noise: the noise used for each step, in nats.
    """

    recorded: Recorded
    deviation: Deviation
    chosen: tuple[int, ...]
    turned: int | None
    steps: int
    noise: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether rounding explains every difference."""
        return self.step is None

    @property
    def step(self) -> int | None:
        """The first wrong step; ``None`` if there is none."""
        lost = self.steps if self.steps < len(self.recorded.tokens) else None
        found = [s for s in (self.turned, self.deviation.first_bad_step, lost) if s is not None]
        return min(found, default=None)

    def __str__(self) -> str:
        """The first difference as text: request, step, token, margin, difference, noise."""
        step = self.step
        name = f"request {self.recorded.request.request_id!r}"
        if step is None:
            return f"{name}: as the golden, up to rounding"
        if step >= self.steps:
            return f"{name}: ended after {step} of {len(self.recorded.tokens)} tokens"
        token, got = self.recorded.tokens[step], self.chosen[step]
        what = f"token {token}" if got == token else f"token {got} in place of {token}"
        return (
            f"{name}, step {step}: {what} (margin {self.recorded.margins[step]:.3g} nats), "
            f"logprobs {self.deviation.difference[step]:.3g} nats off, "
            f"noise {self.noise[step]:.3g}"
        )


def compare(recorded: Recorded, logprobs: np.ndarray, noise: Envelope | None = None) -> Comparison:
    """Compare a run at the golden's tokens with the golden.

    Args:
        noise: measured now, for at least all steps; the larger of this and the golden's counts.

    Shapes:
        logprobs: ``[steps, vocab]``, from a run that was fed ``recorded.tokens``.

    Raises:
        GoldenError: the golden has token ids beyond the vocabulary.
    """
    steps = min(len(logprobs), len(recorded.tokens))
    ids, want = _top(recorded, steps)
    if steps and ids.max() >= logprobs.shape[-1]:
        raise GoldenError(
            f"request {recorded.request.request_id!r}: token {ids.max()} is not in a vocabulary of "
            f"{logprobs.shape[-1]}: the golden is of another model"
        )
    level = np.array(recorded.noise[:steps])
    if noise is not None:
        level = np.maximum(level, noise.top[:steps])
    rows = logprobs[:steps].astype(np.float64)
    envelope = Envelope(level, level, float(level.min(initial=np.inf)))
    if steps:
        found = numerics.deviation(np.take_along_axis(rows, ids, axis=-1), want, envelope)
    else:
        found = Deviation(np.zeros(1), np.zeros(1), 0, None)
    chosen = tuple(int(token) for token in np.nan_to_num(rows, nan=-np.inf).argmax(axis=-1))
    return Comparison(
        recorded=recorded,
        deviation=found,
        chosen=chosen,
        turned=turned(recorded, chosen, level),
        steps=steps,
        noise=tuple(float(value) for value in level),
    )


def settle(
    recorded: Recorded, logprobs: np.ndarray, wider: Sequence[Callable[[], Envelope]]
) -> Comparison:
    """``compare`` with the golden's own noise, then with that of each of ``wider``, until it holds.

    Another device may round differently from the golden's device.
    """
    found = compare(recorded, logprobs)
    for more in wider:
        if found.holds or found.deviation.hopeless or found.steps < len(recorded.tokens):
            break
        found = compare(recorded, logprobs, more())
    return found


def common_shift(recorded: Recorded, logprobs: np.ndarray) -> np.ndarray:
    """The error that all logprobs of a step share, if the rounding of a sum explains it.

    If n exponentials are added up one after another in float32, the sum and thus all logprobs may
    be off by n units of rounding (Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
    mlx sums in this way on the CPU but not on GPUs (docs/defects/mlx/logsumexp_of_a_vocabulary.py).

    Shapes:
        logprobs: ``[steps, vocab]``; the result: float64 ``[steps]``, nats.
    """
    steps = min(len(logprobs), len(recorded.tokens))
    ids, want = _top(recorded, steps)
    if not steps or ids.max() >= logprobs.shape[-1]:
        return np.zeros(steps)
    off = np.median(np.take_along_axis(logprobs[:steps], ids, axis=-1) - want, axis=-1)
    return np.where(np.abs(off) <= logprobs.shape[-1] * _ROUNDING, off, 0.0)


def turned(recorded: Recorded, chosen: Sequence[int], noise: np.ndarray) -> int | None:
    """The first step with a token other than the golden's that noise cannot explain.

    Both tokens' logprobs may move, each by ``numerics.FACTOR`` times the noise.
    """
    for step, token in enumerate(chosen[: len(recorded.tokens)]):
        near = recorded.margins[step] <= 2 * numerics.FACTOR * float(noise[step])
        if token != recorded.tokens[step] and not near:
            return step
    return None


def _top(recorded: Recorded, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and logprobs ``[steps, top]`` of the golden; shorter steps repeat their last entry."""
    width = max((len(step) for step in recorded.top), default=0)
    padded = [[*step, *[step[-1]] * (width - len(step))] for step in recorded.top[:steps]]
    ids = np.array([[token for token, _ in step] for step in padded], np.int64)
    want = np.array([[value for _, value in step] for step in padded], np.float64)
    return ids.reshape(steps, width), want.reshape(steps, width)
