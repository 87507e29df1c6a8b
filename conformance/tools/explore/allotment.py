"""Which families are played in which dtypes, until as many rows are judged as asked for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from conformance.tools.explore.false_alarms import AlarmResult, AlarmUnit

# Rows of one unit of work: enough to make a model's loading worth it, few enough to share out.
LEAST_ROWS, MOST_ROWS = 25, 250

Way = tuple[str, str, str]


class Allotment:
    """Draws units and counts what they gave.

    What a library refuses (a dtype that its kernels lack, say) gives no rows; others are drawn in
    its place, and it is not drawn again.
    """

    def __init__(self, ways: Sequence[Way], cases: int, *, seed: int) -> None:
        """``ways`` are engine, family and dtype; ``cases`` is how many rows to judge."""
        order = np.random.default_rng((seed, 78)).permutation(len(ways))
        self._ways = [ways[index] for index in order]
        self._cases = cases
        self._seed = seed
        self._next: Counter[Way] = Counter()
        self.found: list[AlarmResult] = []

    @property
    def rows(self) -> int:
        """Rows judged so far."""
        return sum(item.rows for item in self.found)

    @property
    def complete(self) -> bool:
        """Whether as many rows were judged as asked for."""
        return self.rows >= self._cases

    def units(self) -> list[AlarmUnit]:
        """Enough for the rows that are missing; none if there are none, or no way is left."""
        left = self._cases - self.rows
        if left <= 0 or not self._ways:
            return []
        rows = min(max(-(-left // len(self._ways)), LEAST_ROWS), MOST_ROWS)
        return [
            self._unit(way, rows)
            for way in itertools.islice(itertools.cycle(self._ways), -(-left // rows))
        ]

    def _unit(self, way: Way, rows: int) -> AlarmUnit:
        # A schedule has a row at least: these numbers are used nowhere else.
        first = self._next[way]
        self._next[way] += rows
        engine, family, dtype = way
        return AlarmUnit(engine, family, dtype, self._seed, rows, first)

    def take(self, item: AlarmResult) -> None:
        """Count a unit's rows; a way that gave fewer than it should have is not drawn again."""
        self.found.append(item)
        way = (item.unit.engine, item.unit.family, item.unit.dtype)
        if item.rows < item.unit.rows and way in self._ways:
            self._ways.remove(way)
