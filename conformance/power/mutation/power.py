"""Mutation testing: each fault in each family, compared with the run without it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.faults import Fault, Hits
from conformance.core.faults.costs import costlier, costlier_schedules
from conformance.core.faults.traits import traits
from conformance.core.numerics import WIDE_FACTOR
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.power.mutation.killing import (
    detected,
    killed,
    killing_schedules,
    overcome,
)
from conformance.power.mutation.kills import read_kills
from conformance.report.trials import LEAST, Kill, Outcome, Trial
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.explain.new_findings import new_findings

_UNSUPPORTED = Verdict.UNSUPPORTED


class Unit(msgspec.Struct, frozen=True):
    """The faults to try in one family."""

    engine: str
    family: str
    dtype: str
    seed: int
    faults: tuple[str, ...]
    every_scenario: bool = False


@dataclass
class Attempt:
    """The runs with a fault so far, by scenario and schedule: ``staggered/late_long``.

    Attributes:
        hits: how often the defect took effect.
        right: by scenario, the result without the fault.
        undetected: the results that no check distinguished from those without the fault.
    """

    hits: dict[str, Hits] = field(default_factory=dict)
    right: dict[str, CaseResult] = field(default_factory=dict)
    undetected: list[CaseResult] = field(default_factory=list)


class Mutations:
    """Tries faults in one family; the runs without a fault are made once."""

    def __init__(self, registry: Registry, unit: Unit) -> None:
        self._registry = registry
        self._unit = unit
        self._session = Session(registry)
        self._right: dict[tuple[str, str], CaseResult] = {}
        engine = registry.engines[unit.engine]
        family = registry.families[engine.library, unit.family]
        applying = registry.scenarios_for(engine, family)
        self._scenarios = {s.name for s in applying if not s.oracle_only}
        self._traits = traits(self._session.subject(self._case("batch_of_one")))
        name = f"{engine.library}/{unit.family}"
        self._caught = {} if unit.every_scenario else read_kills().of(name)

    def try_fault(self, fault: Fault) -> Trial:
        """Run the scenarios that should catch the fault until one does."""
        start = time.perf_counter()
        lacking = fault.lacks(self._traits)
        if lacking:
            return self._trial(fault, Outcome.NOT_APPLICABLE, why=f"the family has no {lacking}")
        scenarios = [name for name in self._order(fault) if name in self._scenarios]
        attempt = Attempt()
        kills = self._kill_again(fault, scenarios, attempt)
        tried = [kill.scenario for kill in kills]
        for name in scenarios if not kills else ():
            tried.append(name)
            found = self._kill(fault, name, attempt)
            kills += [found] if found else []
            if found and not self._unit.every_scenario:
                break
        outcome, why = (Outcome.KILLED, "") if kills else undetected(tried, attempt)
        seconds = round(time.perf_counter() - start, 3)
        return self._trial(
            fault,
            outcome,
            kills=tuple(kills),
            hits=sum(hits.count for hits in attempt.hits.values()),
            tried=tuple(tried),
            why=why,
            seconds=seconds,
            noise=_noise(attempt),
        )

    def _kill_again(self, fault: Fault, scenarios: Sequence[str], attempt: Attempt) -> list[Kill]:
        """The kill by a schedule that caught the fault when tiers were chosen, if it still does."""
        known = [p for p in self._caught.get(fault.name, ()) if p.scenario in scenarios]
        if not known:
            return []
        # Some have a run without the fault already, so no other has to be made.
        place = min(known, key=lambda p: (p not in self._right, scenarios.index(p.scenario), p))
        found = self._kill(fault, place.scenario, attempt, only=place.schedule)
        clear = found and (found.ratio is None or found.ratio >= LEAST[self._unit.dtype])
        return [found] if found and clear else []

    def _order(self, fault: Fault) -> Sequence[str]:
        if not self._unit.every_scenario:
            return fault.scenarios
        rest = (name for name in self._registry.scenarios if name not in fault.scenarios)
        return (*fault.scenarios, *rest)

    def _kill(
        self, fault: Fault, scenario: str, attempt: Attempt, *, only: str = ""
    ) -> Kill | None:
        """The kill by the scenario, or by its one schedule ``only``."""
        case, chosen = self._case(scenario), (only,) if only else ()
        if (scenario, only) not in self._right:
            self._right[scenario, only] = self._session.run(case, only=chosen)
        right = attempt.right[scenario] = self._right[scenario, only]
        if _refused(right):
            return None
        # Later findings matter only to know which checks detect a fault alone.
        until = None if self._unit.every_scenario else partial(enough, fault, right)

        def around(schedule: str) -> AbstractContextManager[None]:
            place = f"{scenario}/{schedule}"
            may_show = fault.may_show(scenario, schedule)
            return fault.inject(attempt.hits.setdefault(place, Hits()) if may_show else Hits())

        wrong = self._session.run(case, around=around, until=until, only=chosen)
        if fault.priced and (dearer := costlier(right, wrong)):
            return Kill(scenario, "cost", dearer, schedules=costlier_schedules(right, wrong))
        if not killed(fault, right, wrong):
            attempt.undetected.append(wrong)
            return None
        found = new_findings(right, wrong.evidence)
        checks = tuple(sorted({finding.check for finding in found}))
        schedules = killing_schedules(fault, right, wrong)
        return Kill(scenario, wrong.verdict.value, checks, _signal(found), schedules)

    def _case(self, scenario: str) -> CaseId:
        unit = self._unit
        return CaseId(unit.engine, unit.family, scenario, unit.dtype, unit.seed)

    def _trial(self, fault: Fault, outcome: Outcome, **found: Any) -> Trial:
        unit = self._unit
        return Trial(
            fault=fault.name,
            fault_class=fault.fault_class,
            engine=unit.engine,
            family=unit.family,
            dtype=unit.dtype,
            seed=unit.seed,
            outcome=outcome,
            complete=unit.every_scenario,
            **found,
        )


def undetected(tried: Sequence[str], attempt: Attempt) -> tuple[Outcome, str]:
    """The outcome of a fault that no check detected, and the reason."""
    right = [attempt.right[name] for name in tried]
    if right and all(_refused(result) for result in right):
        message = next((f.what for f in right[0].evidence if f.verdict is _UNSUPPORTED), "")
        why = f"the library cannot run it without it either: {message}"
        return Outcome.NOT_APPLICABLE, why
    places = [place for place, hits in attempt.hits.items() if hits.count]
    if not places:
        why = f"never took effect in {', '.join(tried)}" if tried else "no scenario applies"
        return Outcome.NOT_APPLICABLE, why
    good = {f"{r.scenario}/{s.name}" for r in right for s in r.schedules if s.verdict.good}
    led = {f"{r.scenario}/{name}" for r in attempt.undetected for name in overcome(right, r)}
    if (good - led).isdisjoint(places):
        return Outcome.HIDDEN, f"the family is wrong without it, too, in {', '.join(places)}"
    return Outcome.SURVIVED, ""


def _noise(attempt: Attempt) -> float | None:
    """The largest ratio of the runs without the fault, except runs known to be wrong."""
    results = attempt.right.values()
    return max((r.ratio for r in results if r.verdict.good and r.ratio is not None), default=None)


def enough(fault: Fault, right: CaseResult, found: Sequence[Finding]) -> bool:
    """Whether a run's findings detect the fault clearly; a small signal may still grow."""
    signal = _signal(new_findings(right, found))
    small = signal is not None and signal < LEAST[right.dtype]
    return detected(fault, right, found) and not small


def _refused(result: CaseResult) -> bool:
    """Whether the library supports none of the schedules."""
    all_of = all(schedule.verdict is _UNSUPPORTED for schedule in result.schedules)
    return result.verdict is _UNSUPPORTED and all_of


def _signal(findings: Sequence[Finding]) -> float | None:
    """The largest ratio; ``None`` if all numbers are within noise, or one is not finite."""
    ratios = [f.ratio for f in findings if f.ratio is not None and f.ratio > WIDE_FACTOR]
    largest = max(ratios, default=math.inf)
    return largest if math.isfinite(largest) else None


def trials(registry: Registry, unit: Unit) -> tuple[Trial, ...]:
    """All trials of a unit; not applicable if the family cannot be loaded or described."""
    faults = [registry.faults[name] for name in unit.faults]
    try:
        mutations = Mutations(registry, unit)
    except Exception as error:  # noqa: BLE001 - whatever a library raises costs its family alone
        message = str(error) if isinstance(error, ConformanceError) else repr(error)
        return without(registry, unit, f"the family can't be loaded here: {message}")
    return tuple(mutations.try_fault(fault) for fault in faults)


def halves(unit: Unit) -> tuple[Unit, ...]:
    """The two halves of the unit, to find a fault that ends its process; empty for one fault."""
    middle = len(unit.faults) // 2
    parts = (unit.faults[:middle], unit.faults[middle:]) if middle else ()
    return tuple(msgspec.structs.replace(unit, faults=part) for part in parts)


def without(registry: Registry, unit: Unit, why: str) -> tuple[Trial, ...]:
    """The trials of a family in which nothing could be tried."""
    return _untried(registry, unit, Outcome.NOT_APPLICABLE, why)


def crashed(registry: Registry, unit: Unit) -> tuple[Trial, ...]:
    """The trials of faults that ended their process: they survive, as no check could run."""
    return _untried(registry, unit, Outcome.SURVIVED, "its process crashed")


def _untried(registry: Registry, unit: Unit, outcome: Outcome, why: str) -> tuple[Trial, ...]:
    return tuple(
        Trial(
            registry.faults[name].name,
            registry.faults[name].fault_class,
            unit.engine,
            unit.family,
            unit.dtype,
            unit.seed,
            outcome,
            why=why,
        )
        for name in unit.faults
    )
