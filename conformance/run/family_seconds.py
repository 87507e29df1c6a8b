"""Recorded run times of each family, which decide the order of work, the shards, the time left.

``python ci/family_seconds.py`` writes ``family_seconds.json`` from the results of a run.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

from conformance.core.verdict import CaseId, CaseResult

FILE = "family_seconds.json"
_RECORD = dict[str, float | dict[str, float]]


@dataclass(frozen=True)
class FamilySeconds:
    """Seconds of a family, by ``library/family``; only their ratios matter.

    Attributes:
        recorded: the seconds of each scenario, or of all together.
    """

    recorded: Mapping[str, float | Mapping[str, float]]

    @classmethod
    def load(cls) -> FamilySeconds:
        """The times of the installed package."""
        return cls.read(resources.files("conformance.run") / FILE)

    @classmethod
    def read(cls, file: Traversable) -> FamilySeconds:
        """The times in a file."""
        return cls(msgspec.json.decode(file.read_bytes(), type=_RECORD))

    def of(self, group: str) -> float:
        """The seconds of a group; without a record, as for a new family, the median."""
        return float(self._totals.get(group, self._median))

    def of_case(self, group: str, scenario: str) -> float:
        """The seconds of one scenario of a group; without a record, as in other groups.

        If there is no record of the scenario at all, a root: what is slow as a whole is less so in
        a part.
        """
        parts = self.recorded.get(group)
        if isinstance(parts, Mapping) and scenario in parts:
            return float(parts[scenario])
        return float(self._usual.get(scenario, math.sqrt(self.of(group))))

    @functools.cached_property
    def _totals(self) -> dict[str, float]:
        found = self.recorded.items()
        return {
            group: sum(parts.values()) if isinstance(parts, Mapping) else parts
            for group, parts in found
        }

    @functools.cached_property
    def _usual(self) -> dict[str, float]:
        """The median of each scenario."""
        found: dict[str, list[float]] = {}
        for parts in self.recorded.values():
            for scenario, seconds in parts.items() if isinstance(parts, Mapping) else ():
                found.setdefault(scenario, []).append(seconds)
        return {scenario: statistics.median(each) for scenario, each in found.items()}

    @functools.cached_property
    def _median(self) -> float:
        return statistics.median(self._totals.values()) if self.recorded else 1.0

    def parts(self, groups: Iterable[str], count: int) -> tuple[tuple[str, ...], ...]:
        """Split the groups into ``count`` parts that take about equal time.

        The longest groups come first, each into the part with the least time so far; equal ones are
        ordered by name, so that every machine finds the same parts.
        """
        parts: list[list[str]] = [[] for _ in range(count)]
        seconds = [0.0] * count
        for group in sorted(set(groups), key=lambda name: (-self.of(name), name)):
            least = min(range(count), key=seconds.__getitem__)
            parts[least].append(group)
            seconds[least] += self.of(group)
        return tuple(map(tuple, parts))


def measured(
    results: Iterable[CaseResult], group_of: Callable[[CaseResult], str]
) -> dict[str, dict[str, float]]:
    """The seconds of each group's scenarios in the results of a run, to three digits, by name.

    Several engines of a library share a group: of a scenario, the mean of its cases.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for result in results:
        parts = found.setdefault(group_of(result), {})
        parts.setdefault(result.scenario, []).append(result.seconds)
    return {
        group: {name: float(f"{statistics.mean(each):.3g}") for name, each in sorted(parts.items())}
        for group, parts in sorted(found.items())
    }


# The time that a run still takes: recorded seconds, and how much longer its cases took so far -----

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
