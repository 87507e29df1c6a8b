"""Random schedules on families without known defects, where any finding is a false alarm.

Each schedule uses a random subset of features (swarm testing, Groce et al., ISSTA 2012), so that
no feature hides another. Prompts are the shared ones of the ladder, so that one oracle stream
serves many schedules.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from conformance.core.failures import failure_of
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.choices import Seeded
from conformance.scenarios.drawn import Space, draw_schedule
from conformance.scenarios.features import Feature, able

_SPACE = Space(
    requests=6, tokens=6, lengths=(1, 2, 3, 5, 7, 8, 11, 13, 17, 23), variants=3, latest=7
)
_FEATURES = (
    Feature.ARRIVALS,
    Feature.REMOVALS,
    Feature.PIECES,
    Feature.SLOTS,
    Feature.SAMPLERS,
    Feature.PROCESSORS,
    Feature.STOP,
)


class AlarmUnit(msgspec.Struct, frozen=True):
    """At least ``rows`` requests, in schedules determined by ``first`` and ``seed``."""

    engine: str
    family: str
    dtype: str
    seed: int
    rows: int
    first: int = 0


class Alarm(msgspec.Struct, frozen=True):
    """A schedule that was not exact, with everything needed to run it again."""

    engine: str
    family: str
    dtype: str
    seed: int
    verdict: str
    what: str
    schedule: Schedule


class AlarmResult(msgspec.Struct, frozen=True):
    """The result of a unit.

    Attributes:
        unit: the work.
        schedules: how many were judged.
        rows: their requests; fewer than in the unit if the library refused or failed.
        worst_ratio: the largest difference over its noise.
        alarms: schedules that were not exact.
        unsupported: the library's message if it refused; else empty.
    """

    unit: AlarmUnit
    schedules: int = 0
    rows: int = 0
    worst_ratio: float = 0.0
    alarms: tuple[Alarm, ...] = ()
    unsupported: str = ""


def play_random(registry: Registry, unit: AlarmUnit) -> AlarmResult:
    """Run random schedules on one family until ``unit.rows`` requests have been judged."""
    engine = registry.engines[unit.engine]
    case = CaseId(unit.engine, unit.family, "random", unit.dtype, unit.seed)
    rows, worst, count = 0, 0.0, 0
    alarms: list[Alarm] = []
    schedule = Schedule("random", ())
    try:
        subject = Session(registry).subject(case)
        brief = brief_for(subject, engine, unit.seed)
        while rows < unit.rows:
            schedule = random_schedule(brief, unit.first + count)
            outcome = judge_batched(subject, engine, _RANDOM, [schedule])
            refused = [f for f in outcome.findings if f.verdict is Verdict.UNSUPPORTED]
            if refused:
                return AlarmResult(unit, count, rows, worst, tuple(alarms), refused[0].what)
            count, rows = count + 1, rows + len(schedule.requests)
            worst = max(worst, outcome.numbers.ratio if outcome.numbers else 0.0)
            alarms += [
                alarm(unit, finding.verdict, finding.what, schedule)
                for finding in outcome.findings
                if not finding.verdict.good and finding.verdict is not Verdict.VACUOUS
            ]
    except Exception as error:  # noqa: BLE001 - whatever a library raises is a result
        failure = failure_of(error, "decoding one request alone")
        if failure.unsupported:
            return AlarmResult(unit, count, rows, worst, tuple(alarms), str(failure))
        alarms.append(alarm(unit, Verdict.CRASH, str(failure), schedule))
    return AlarmResult(unit, count, rows, worst, tuple(alarms))


def alarm(unit: AlarmUnit, verdict: Verdict, what: str, schedule: Schedule) -> Alarm:
    """An alarm for a finding in a unit's schedule."""
    about = (unit.engine, unit.family, unit.dtype, unit.seed)
    return Alarm(*about, verdict.value, what, schedule)


def random_schedule(brief: Brief, index: int) -> Schedule:
    """The schedule determined by the brief's seed and ``index``."""
    choices = Seeded(brief.seed, index, 77)
    features = [feature for feature in able(brief) if feature in _FEATURES and choices.flag()]
    return draw_schedule(choices, brief, features, _SPACE, name=f"random{index}")


# A removal may come too late, so no witness is required of a schedule.
_RANDOM = Scenario("random", 0, "random schedules", frozenset(), lambda _: ())


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
