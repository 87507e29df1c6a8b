"""Runs a schedule as cheaply as possible: one free run, more only if it differs from the oracle.

Memory is not dirtied before the first run. The cheaper checks suffice, since a schedule that finds
a defect is kept and then run like all others.
"""

from __future__ import annotations

import dataclasses
import time

from conformance.checks import CHECKS, Play
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError, Unsupported
from conformance.core.failures import failure_of
from conformance.core.faults import Fault, Hits
from conformance.core.faults.patching import together
from conformance.core.schedule import Schedule, to_json
from conformance.core.verdict import CaseId, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for
from conformance.run.judging.playing import play_schedule
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios.build import SHORT, text_request
from conformance.tools.explore.feature_coverage import Coverage
from conformance.tools.explore.results import ExploreUnit, Signature, signature

# Verdicts that do not mean a defect.
_ASIDE = frozenset({Verdict.POLICY, Verdict.UNSUPPORTED, Verdict.VACUOUS})
# Any broken code leads to these: they detect only a fault that is itself a crash.
_BLUNT = frozenset({Verdict.CRASH, Verdict.HANG})


class Player:
    """Runs and judges schedules on one family's model.

    Attributes:
        unit: the unit to explore.
        engine: of the unit.
        subject: the model; while the engine runs, the unit's fault is injected, or its known
            defects are mended.
        brief: the facts that schedules are made from.
        coverage: of all schedules that were run.
        refused: how many schedules the library does not support.
    """

    def __init__(
        self, registry: Registry, unit: ExploreUnit, session: Session | None = None
    ) -> None:
        """Load the model, unless ``session`` already holds it.

        Raises:
            ModelError: the library cannot load it.
        """
        self.unit = unit
        self.engine = registry.engines[unit.engine]
        session = session or Session(registry)
        plain = session.subject(CaseId(unit.engine, unit.family, "explore", unit.dtype, 0))
        session.phases.read(plain.meter)
        self._fault: Fault | None = registry.faults[unit.fault] if unit.fault else None
        mends = [found for name in unit.mended if (found := registry.mend_of(name))]
        if mends:
            repairs = [mend.repair for mend in {mend.key: mend for mend in mends}.values()]
            around = lambda _: together(*(repair(Hits()) for repair in repairs))  # noqa: E731
            plain = dataclasses.replace(plain, around=around)
        self._plain = plain
        self.subject: Subject = plain
        if self._fault is not None:
            inject, hits = self._fault.inject, Hits()
            self.subject = dataclasses.replace(plain, around=lambda _: inject(hits))
        self.brief = brief_for(plain, self.engine, 0)
        self.coverage = Coverage(self.engine, self.brief, unit.without)
        self.refused = 0
        self._known: dict[str, tuple[Finding, ...]] = {}
        self._aside = _ASIDE
        if self._fault is not None and not self._fault.crash:
            self._aside = _ASIDE | _BLUNT

    def check_decodes(self) -> None:
        """Decode one single stream: a model that cannot do this cannot be explored.

        Raises:
            Unsupported: the library does not support decoding here; has its message.
            ModelError: decoding fails.
        """
        try:
            self.brief.solo(text_request(self.brief, "first", SHORT), EngineOptions())
        except Exception as error:
            failure = failure_of(error, "decoding one request alone")
            kind = Unsupported if failure.unsupported else ModelError
            raise kind(str(failure)) from error

    def findings(self, schedule: Schedule) -> tuple[Finding, ...]:
        """The findings against the engine in this schedule; kept for schedules run before."""
        key = to_json(schedule)
        if key not in self._known:
            self._known[key] = self._findings(schedule)
        return self._known[key]

    def played_before(self, schedule: Schedule) -> bool:
        """Whether the schedule was run before."""
        return to_json(schedule) in self._known

    def accuses(self, finding: Finding) -> bool:
        """Whether a finding counts; with most faults a crash does not count."""
        return not finding.verdict.good and finding.verdict not in self._aside

    def shows(self, schedule: Schedule, wanted: Signature) -> Finding | None:
        """A finding with this signature in the schedule; with a fault, any finding."""
        return next(
            (f for f in self.findings(schedule) if self._fault or signature(f) == wanted), None
        )

    def modelled(self) -> float:
        """Seconds spent in the engine and in the oracle so far."""
        spent = self.subject.phases.spent
        return sum(
            spent[name].wall for name in ("engine", "single stream", "noise") if name in spent
        )

    def _findings(self, schedule: Schedule) -> tuple[Finding, ...]:
        found = self._checked(self.subject, schedule)
        if found and self._fault is not None and self._checked(self._plain, schedule):
            return ()  # the schedule is wrong without the fault too
        return found

    def _checked(self, subject: Subject, schedule: Schedule) -> tuple[Finding, ...]:
        def enough(played: Play) -> bool:
            return bool(self._accusing(subject, played))

        try:
            played = play_schedule(
                subject, self.engine, schedule, once=True, churn=False, enough=enough
            )
        except Exception as error:  # noqa: BLE001 - whatever a library raises is a result
            return self._failed(error, schedule)
        with subject.phases("coverage"):
            self.coverage.add(schedule, played.traces[:1])
        if any(trace.failure is not None and trace.failure.unsupported for trace in played.traces):
            self.refused += 1
        return self._accusing(subject, played)

    def _accusing(self, subject: Subject, played: Play) -> tuple[Finding, ...]:
        with subject.phases("checks"):
            return tuple(
                finding for check in CHECKS for finding in check(played) if self.accuses(finding)
            )

    def _failed(self, error: Exception, schedule: Schedule) -> tuple[Finding, ...]:
        """The finding for a single stream that failed."""
        failure = failure_of(error, "decoding one request alone")
        if failure.unsupported:
            self.refused += 1
            return ()
        got = f"{failure.type_name}: {failure.message}"
        what = f"the single stream raised {failure}"
        finding = Finding(Verdict.CRASH, "failure", what, schedule=schedule.name, got=got)
        return (finding,) if self.accuses(finding) else ()


class Clock:
    """Measures the time of a unit; stopped during shrinking.

    Attributes:
        wall: seconds so far.
        cpu: seconds of this process.
        rates: ticks in each second of ``cpu``.
    """

    def __init__(self) -> None:
        self.rates: list[int] = []
        self._wall = self._cpu = 0.0
        self._since: tuple[float, float] | None = None

    def start(self) -> None:
        """Start or continue."""
        self._since = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Pause."""
        self._wall, self._cpu = self.wall, self.cpu
        self._since = None

    @property
    def wall(self) -> float:
        """Seconds so far."""
        return self._wall + (time.perf_counter() - self._since[0] if self._since else 0.0)

    @property
    def cpu(self) -> float:
        """Seconds of this process, all its threads."""
        return self._cpu + (time.process_time() - self._since[1] if self._since else 0.0)

    def tick(self) -> None:
        """Record that an example has ended."""
        second = int(self.cpu)
        self.rates += [0] * (second + 1 - len(self.rates))
        self.rates[second] += 1
