"""The time that a run still takes: recorded seconds, and how much longer its cases took so far.

Another tier plays other schedules of a scenario, so the ratio is learnt for each scenario.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from conformance.core.verdict import CaseId

_FIRST_GUESS = 3  # cases: as long a scenario's own ratio counts no more than that of all


class TimeLeft:
    """Estimates the seconds that are left, from the cases that have ended.

    Args:
        recorded: the recorded seconds of each selected case.
        workers: how many cases run at once.
    """

    def __init__(self, recorded: Mapping[str, float], workers: int = 1) -> None:
        self._weights = recorded
        self._scenarios = {case: CaseId.parse(case).scenario for case in recorded}
        self._workers = max(1, workers)
        self._left = dict.fromkeys(recorded)
        self._seconds: dict[str, float] = defaultdict(float)
        self._weight: dict[str, float] = defaultdict(float)
        self._count: Counter[str] = Counter()

    def ended(self, case: str, seconds: float) -> None:
        """Note that a case has ended, which took so many seconds; an unknown one counts nothing."""
        if case not in self._left:
            return
        del self._left[case]
        scenario = self._scenarios[case]
        self._seconds[scenario] += seconds
        self._weight[scenario] += self._weights[case]
        self._count[scenario] += 1

    def seconds(self, spent: float) -> float:
        """The seconds that are left when ``spent`` have passed; 0 as long as nothing has ended."""
        done = sum(self._seconds.values())
        if not done or not self._left:
            return 0.0
        rates = self._rates()
        expected = [self._weights[case] * rates[self._scenarios[case]] for case in self._left]
        left = sum(expected)
        # A case has just ended; of those of the other workers, which are not counted, half is done.
        begun = min(len(expected), self._workers - 1) * left / len(expected) / 2
        return spent * (left - begun) / (done + begun)

    def _rates(self) -> dict[str, float]:
        """By scenario, seconds per recorded one; of few cases, drawn to the ratio of all."""
        mean = sum(self._seconds.values()) / sum(self._weight.values())
        guess = _FIRST_GUESS * sum(self._weight.values()) / self._count.total()
        return {
            scenario: (self._seconds[scenario] + guess * mean) / (self._weight[scenario] + guess)
            for scenario in set(self._scenarios.values())
        }
