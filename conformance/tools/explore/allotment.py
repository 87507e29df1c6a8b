"""Chooses families and dtypes to run until the requested number of rows has been judged."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from conformance.tools.explore.false_alarms import AlarmResult, AlarmUnit

# Rows per unit of work: enough to justify loading a model, few enough to share out.
LEAST_ROWS, MOST_ROWS = 25, 250

Way = tuple[str, str, str]


class Allotment:
    """Draws units and counts their rows.

    A family or dtype that a library refuses (for lack of kernels, say) gives no rows; it is not
    drawn again, and others are drawn in its place.
    """

    def __init__(self, ways: Sequence[Way], cases: int, *, seed: int) -> None:
        """``ways`` are engine, family and dtype; ``cases`` is the number of rows to judge."""
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
        """Whether the requested number of rows has been judged."""
        return self.rows >= self._cases

    def units(self) -> list[AlarmUnit]:
        """Units for the missing rows; empty if no rows are missing or no way is left."""
        left = self._cases - self.rows
        if left <= 0 or not self._ways:
            return []
        rows = min(max(-(-left // len(self._ways)), LEAST_ROWS), MOST_ROWS)
        return [
            self._unit(way, rows)
            for way in itertools.islice(itertools.cycle(self._ways), -(-left // rows))
        ]

    def _unit(self, way: Way, rows: int) -> AlarmUnit:
        # A schedule has at least one row, so these numbers are used nowhere else.
        first = self._next[way]
        self._next[way] += rows
        engine, family, dtype = way
        return AlarmUnit(engine, family, dtype, self._seed, rows, first)

    def take(self, item: AlarmResult) -> None:
        """Count a unit's rows; a way that gave too few is not drawn again."""
        self.found.append(item)
        way = (item.unit.engine, item.unit.family, item.unit.dtype)
        if item.rows < item.unit.rows and way in self._ways:
            self._ways.remove(way)
