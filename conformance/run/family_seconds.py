"""Recorded run times of each family, which decide the order of work and the shards.

``python ci/family_seconds.py`` writes ``family_seconds.json`` from the results of a run.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

import msgspec

from conformance.core.verdict import CaseResult

FILE = "family_seconds.json"


@dataclass(frozen=True)
class FamilySeconds:
    """Seconds of all cases of a family, by ``library/family``; only their ratios matter."""

    recorded: Mapping[str, float]

    @classmethod
    def load(cls) -> FamilySeconds:
        """The times of the installed package."""
        file = resources.files("conformance.run") / FILE
        return cls(msgspec.json.decode(file.read_bytes(), type=dict[str, float]))

    def of(self, group: str) -> float:
        """The seconds of a group; without a record, as for a new family, the median."""
        found = self.recorded.get(group)
        return self._median if found is None else found

    @functools.cached_property
    def _median(self) -> float:
        return statistics.median(self.recorded.values()) if self.recorded else 1.0

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
) -> dict[str, float]:
    """The seconds of each group in the results of a run, to three digits, by name."""
    found: dict[str, float] = {}
    for result in results:
        group = group_of(result)
        found[group] = found.get(group, 0.0) + result.seconds
    return {group: float(f"{found[group]:.3g}") for group in sorted(found)}
