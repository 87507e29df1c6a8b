"""Generates schedules and programs, batch by batch, and shrinks those that find a defect."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, FlakyStrategyDefinition
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError, Unsupported
from conformance.core.schedule import Continuation, Request, Schedule
from conformance.core.verdict import Finding
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios.choices import Seeded
from conformance.scenarios.drawn import Space, draw_options, draw_request, draw_schedule
from conformance.scenarios.features import Feature, together
from conformance.scenarios.smaller_schedules import smallest
from conformance.scenarios.workloads.drawing import draw_workload
from conformance.tools.explore.driving import Drive, replay
from conformance.tools.explore.player import Clock, Player
from conformance.tools.explore.results import (
    Discovery,
    Explored,
    ExploreUnit,
    Maker,
    Signature,
    signature,
    worst,
)

BATCH = 40  # schedules with one subset of features, or half as many programs
MACHINES = 4  # one batch in this many consists of programs, another of workloads
WORKLOADS = 8  # in a batch; each has dozens of requests
STEPS = 14  # most steps of a program
SECONDS = 60.0  # for making a schedule small
MOST = 3  # discoveries per family; one if a fault is injected


class _OverError(BaseException):
    """No more examples; not an ``Exception``, so that Hypothesis re-raises it at once."""


@dataclass(frozen=True)
class _Found:
    """A new defect: the finding, and the schedule as generated.

    ``broken`` is true if only calling the engine step by step shows it.
    """

    finding: Finding
    schedule: Schedule
    maker: Maker
    broken: bool


class Hunt:
    """Explores one family.

    Attributes:
        examples: number of generated schedules, excluding those tried in shrinking.
        programs: how many of them are programs.
        again: findings that resemble one reported before, or a known defect.
        unsteady: batches in which the engine was not deterministic.
    """

    def __init__(self, player: Player, unit: ExploreUnit) -> None:
        self._player, self._unit = player, unit
        self._found: _Found | None = None
        self._reported: set[Signature] = set()
        self._clock = Clock()
        self._modelled = 0.0
        self._mark = 0.0
        self._features: frozenset[Feature] = frozenset()
        self._stopped = False
        self.examples = self.programs = self.again = self.unsteady = 0
        self.discoveries: list[Discovery] = []

    def run(self) -> Explored:
        """Run batches until the limit of examples, seconds or discoveries."""
        number = 0
        self._resume()
        while not self._over():
            self._features = self._subset(number)
            self._batch(self._maker(number), self._seed(number))
            if self._found is not None:
                self._pause()
                self.discoveries.append(self._discovery(self._found))
                self._reported.add(signature(self._found.finding))
                self._found = None
                self._resume()
            number += 1
        self._pause()
        coverage, clock = self._player.coverage, self._clock
        return Explored(
            self._unit,
            self.examples,
            self.programs,
            self._player.refused,
            wall=round(clock.wall, 3),
            cpu=round(clock.cpu, 3),
            modelled=round(self._modelled, 3),
            rates=tuple(clock.rates),
            able=tuple(feature.value for feature in coverage.able),
            pairs=dict(coverage.pairs),
            witnesses=tuple(name for name in coverage.possible if name in coverage.seen),
            possible=coverage.possible,
            again=self.again,
            unsteady=self.unsteady,
            discoveries=tuple(self.discoveries),
        )

    def _discovery(self, found: _Found) -> Discovery:
        """The defect with the smallest schedule that shows it."""
        wanted, begun = signature(found.finding), time.monotonic()

        def shown(schedule: Schedule) -> Finding | None:
            if not found.broken:
                return self._player.shows(schedule, wanted)
            broken = replay(self._player, schedule)
            alike = broken is not None and (self._unit.fault or signature(broken) == wanted)
            return broken if alike else None

        small = smallest(found.schedule, lambda s: shown(s) is not None, seconds=SECONDS).value
        finding = shown(small) or found.finding
        return Discovery(
            self._unit.engine,
            self._unit.family,
            self._unit.dtype,
            finding.verdict,
            finding.check,
            finding.what,
            self.examples,
            found.maker,
            not found.broken,
            round(time.monotonic() - begun, 2),
            small,
            found.schedule,
        )

    def _batch(self, make: Callable[[int], None], seed: int) -> None:
        """Run one batch, until it finds a defect or is over."""
        self._stopped = False
        try:
            make(seed)
        except _OverError:
            pass
        except (Flaky, FlakyStrategyDefinition):
            # Stopping early causes this too; otherwise the engine is not deterministic.
            self.unsteady += not self._stopped

    def _over(self) -> bool:
        late = self._unit.seconds is not None and self._clock.wall >= self._unit.seconds
        return (
            late
            or self.examples >= self._unit.examples
            or len(self.discoveries) >= (1 if self._unit.fault else MOST)
        )

    def _subset(self, number: int) -> frozenset[Feature]:
        """Each feature with even chance, in random order; of exclusive ones the first is kept."""
        choices = Seeded(self._seed(number), 1)
        left = [feature for feature in self._player.coverage.able if choices.flag()]
        order: list[Feature] = []
        while left:
            order.append(left.pop(choices.integer(0, len(left) - 1)))
        return together(order, uncut=self._player.brief.uncut)

    def _seed(self, number: int) -> int:
        unit = self._unit
        return zlib.crc32(f"{unit.engine}/{unit.family}/{unit.seed}/{number}".encode())

    def _maker(self, number: int) -> Callable[[int], None]:
        left = number % MACHINES
        if left == MACHINES - 1:
            return self._programs
        return self._workloads if left == MACHINES - 2 else self._schedules

    def _workloads(self, seed: int) -> None:
        """A batch of workloads."""
        for number in range(WORKLOADS):
            self._enough()
            choices = Seeded(seed, number)
            schedule = draw_workload(choices, self._player.brief, self._features, name="drawn")
            self._try(schedule, Maker.WORKLOADS)

    def _schedules(self, seed: int) -> None:
        """A batch of schedules."""

        @hypothesis.seed(seed)
        @settings(_settings(), max_examples=BATCH)
        @given(st.data())
        def attempt(data: st.DataObject) -> None:
            self._enough()
            schedule = draw_schedule(
                Drawn(data), self._player.brief, self._features, SPACE, name="drawn"
            )
            self._try(schedule, Maker.SCHEDULES)

        attempt()

    def _programs(self, seed: int) -> None:
        """A batch of programs."""
        made = machine(player=self._player, features=self._features, ended=self._ended)
        chosen = settings(_settings(), max_examples=BATCH // 2, stateful_step_count=STEPS)
        run_state_machine_as_test(hypothesis.seed(seed)(made), settings=chosen)

    def _ended(self, drive: Drive) -> None:
        """Run a program's calls as a schedule if it violated the protocol or is suspect."""
        self._enough()
        schedule = drive.schedule
        if not schedule.arrivals:
            return
        if drive.broken is None and not drive.suspect:
            self._count(Maker.MACHINE)
            self._player.coverage.add(schedule, ())
            self._player.refused += drive.refused
            return
        self._try(schedule, Maker.MACHINE, broken=drive.broken)

    def _try(self, schedule: Schedule, maker: Maker, *, broken: Finding | None = None) -> None:
        """Run the schedule, and stop if it finds a new defect."""
        if not self._player.played_before(schedule):
            self._count(maker)
        found = self._player.findings(schedule)
        only_broken = broken is not None and not found and self._player.accuses(broken)
        if only_broken:
            assert broken is not None
            found = (broken,)
        if not found:
            return
        finding = worst(found)
        if signature(finding) in self._reported or finding.verdict in self._unit.known:
            self.again += 1
            return
        self._found = _Found(finding, schedule, maker, only_broken)
        self._stop()

    def _enough(self) -> None:
        """Stop if the limit of examples or of seconds is reached."""
        if self._over():
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        raise _OverError

    def _count(self, maker: Maker) -> None:
        self.examples += 1
        self.programs += maker is Maker.MACHINE
        self._clock.tick()

    def _pause(self) -> None:
        self._clock.stop()
        self._modelled += self._player.modelled() - self._mark

    def _resume(self) -> None:
        self._mark = self._player.modelled()
        self._clock.start()


def explore(
    registry: Registry,
    unit: ExploreUnit,
    *,
    session: Session | None = None,
) -> Explored:
    """Explore one family; a model that cannot be loaded, or cannot decode, is a result.

    Args:
        session: shares its models and single streams; a new one by default.
    """
    try:
        player = Player(registry, unit, session)
        player.check_decodes()
    except Unsupported as error:
        return Explored(unit, unsupported=str(error))
    except ModelError as error:
        return Explored(unit, failed=str(error))
    return Hunt(player, unit).run()


def _settings() -> settings:
    return settings(
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
    )


# Programs of insert, step, remove and extract in any order, generated by Hypothesis ---------------

T = TypeVar("T")


class Drawn:
    """Choices drawn from the data of a Hypothesis test.

    They are drawn directly from its choice sequence. A strategy for each would take ten times as
    long, and a schedule needs dozens of choices.
    """

    def __init__(self, data: st.DataObject) -> None:
        self._data = data.conjecture_data

    def integer(self, low: int, high: int) -> int:
        """See ``Choices.integer``."""
        return low if low == high else self._data.draw_integer(low, high, shrink_towards=low)

    def flag(self) -> bool:
        """See ``Choices.flag``."""
        return self._data.draw_boolean()

    def pick(self, options: Sequence[T]) -> T:
        """See ``Choices.pick``."""
        return options[self.integer(0, len(options) - 1)]


MOST_REQUESTS = 5
SPACE = Space()
"""The limits of schedules and of programs."""


class Machine(RuleBasedStateMachine):
    """A program for one engine, which a subclass sets.

    Attributes:
        player: runs it.
        features: that requests and options may have.
        ended: called with the drive when the program has ended or violated the protocol; may raise.
    """

    player: ClassVar[Player]
    features: ClassVar[frozenset[Feature]]
    ended: ClassVar[Callable[[Drive], None]]

    def __init__(self) -> None:
        super().__init__()
        self._drive: Drive | None = None
        self._options = EngineOptions()
        self._count = 0
        self._ended = False

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Create the engine."""
        choices = Drawn(data)
        self._options = draw_options(choices, self.player.brief, self.features)
        self._drive = Drive(self.player, self._options)

    @precondition(lambda self: self._count < MOST_REQUESTS)
    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        """Insert one or two requests in one call."""
        room = min(2, MOST_REQUESTS - self._count)
        count = Drawn(data).integer(1, room)
        self._running.insert([self._request(data) for _ in range(count)])

    @rule()
    def step(self) -> None:
        """Take one step."""
        self._running.step()

    @precondition(lambda self: self._can_remove())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Cancel a request, whatever its stage."""
        self._running.remove(Drawn(data).pick(self._running.live))

    @precondition(lambda self: self._can_extract())
    @rule(data=st.data())
    def extract(self, data: st.DataObject) -> None:
        """Continue from the cache of a request."""
        source, after = Drawn(data).pick(self._running.sources())
        continuation = Continuation(source.request_id, after)
        request = msgspec.structs.replace(self._request(data), stop=(), segments=())
        self._running.insert([msgspec.structs.replace(request, continues=continuation)])

    @invariant()
    def keeps_the_protocol(self) -> None:
        """Check the protocol after each rule."""
        if self._drive is not None and self._drive.broken is not None:
            self._end()

    def teardown(self) -> None:
        """Finish all requests."""
        if self._drive is not None:
            self._end()

    def _end(self) -> None:
        """Finish once; later calls do nothing."""
        if not self._ended:
            self._ended = True
            self._running.finish()
            type(self).ended(self._running)

    @property
    def _running(self) -> Drive:
        assert self._drive is not None
        return self._drive

    def _request(self, data: st.DataObject) -> Request:
        name = f"r{self._count}"
        self._count += 1
        own = self.features - {Feature.MEDIA}
        return draw_request(
            Drawn(data),
            self.player.brief,
            own,
            SPACE,
            name=name,
            options=self._options,
        )

    def _can_remove(self) -> bool:
        able = Feature.REMOVALS in self.features and self._drive is not None
        return able and bool(self._running.live)

    def _can_extract(self) -> bool:
        able = Feature.CONTINUES in self.features and self._drive is not None
        return able and self._count < MOST_REQUESTS and bool(self._running.sources())


def machine(**attributes: Any) -> type[Machine]:
    """The machine with these attributes, as a class, which Hypothesis requires."""
    attributes["ended"] = staticmethod(attributes["ended"])
    return type("Program", (Machine,), attributes)
