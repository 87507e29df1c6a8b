"""The separation of faults and rounding: a family's smallest signal over its largest noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.report.trials import Outcome, Trial

LEAST = {"float32": 100.0, "bfloat16": 5.0, "float16": 5.0}
"""The separation that a family should have in each dtype."""


@dataclass(frozen=True)
class Separation:
    """The separation of one family in one dtype.

    A difference is measured in units of the noise envelope of its own step (``numerics``).

    Attributes:
        signal: the smallest of the signals of the family's killed faults. A fault's signal is the
            largest difference of a run with it that the right run lacks, in units of noise; faults
            that no number detects have none and are left out. A run ends once it detects the fault
            clearly, so the signal is a lower bound; the smallest signals are exact.
        noise: the largest difference of all right runs of the family, in units of noise; at least
            1, since rounding may reach the envelope.
        fault: the fault with the smallest signal.
    """

    engine: str
    family: str
    dtype: str
    signal: float
    noise: float
    fault: str

    @property
    def value(self) -> float:
        """Signal over noise."""
        return self.signal / self.noise

    @property
    def enough(self) -> bool:
        """Whether it is large enough for the dtype."""
        return self.value >= LEAST[self.dtype]


def separations(trials: Sequence[Trial]) -> tuple[Separation, ...]:
    """The separation of each family and dtype, the smallest first.

    A family without a killed fault that a number detects has no separation.
    """
    groups: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.engine, trial.family, trial.dtype].append(trial)
    found = []
    for key, group in groups.items():
        signals = [
            (trial.signal, trial.fault)
            for trial in group
            if trial.outcome is Outcome.KILLED and trial.signal is not None
        ]
        if signals:
            noise = max([1.0, *(trial.noise for trial in group if trial.noise is not None)])
            signal, fault = min(signals)
            found.append(Separation(*key, signal, noise, fault))
    return tuple(sorted(found, key=lambda item: item.value))
