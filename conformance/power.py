"""How much the checks would have caught: each fault in each family, against the run without it."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from conformance.errors import ConformanceError
from conformance.faults import Fault, Hits
from conformance.faults.costs import costlier
from conformance.faults.killing import killed, new_findings, tells
from conformance.faults.traits import traits
from conformance.registry import Registry
from conformance.session import Session
from conformance.verdict import CaseId, CaseResult, Finding


class Outcome(enum.StrEnum):
    """What became of a fault in a family."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_APPLICABLE = "not applicable"


class Kill(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scenario that caught a fault.

    ``checks`` are those with a finding that the right run has not; ``ratio`` is the largest
    difference of such a finding over its noise, ``None`` where none was measured.
    """

    scenario: str
    verdict: str
    checks: tuple[str, ...]
    ratio: float | None = None


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault in a family: one line of the result file of ``conformance power``.

    ``hits`` is how often the defect took effect, ``tried`` the scenarios that were run with it,
    ``why`` says why it is not applicable.
    """

    fault: str
    fault_class: str
    engine: str
    family: str
    dtype: str
    seed: int
    outcome: Outcome
    kills: tuple[Kill, ...] = ()
    hits: int = 0
    tried: tuple[str, ...] = ()
    why: str = ""
    seconds: float = 0.0
    schema: int = 1


class Unit(msgspec.Struct, frozen=True):
    """All faults that are to be tried in one family."""

    engine: str
    family: str
    dtype: str
    seed: int
    faults: tuple[str, ...]
    every_scenario: bool = False


class Bench:
    """Tries faults in one family; the runs without them are made once."""

    def __init__(self, registry: Registry, unit: Unit) -> None:
        self._registry = registry
        self._unit = unit
        self._session = Session(registry)
        self._right: dict[str, CaseResult] = {}
        engine = registry.engines[unit.engine]
        family = registry.families[engine.library, unit.family]
        self._scenarios = {s.name for s in registry.scenarios_for(engine, family) if not s.alone}
        self._traits = traits(self._session.subject(self._case("batch_of_one")))

    def try_fault(self, fault: Fault) -> Trial:
        """Run the scenarios that should catch the fault until one does."""
        start = time.perf_counter()
        lacking = fault.lacks(self._traits)
        if lacking:
            return self._trial(fault, Outcome.NOT_APPLICABLE, why=f"the family has no {lacking}")
        scenarios = [name for name in self._order(fault) if name in self._scenarios]
        kills: list[Kill] = []
        tried: list[str] = []
        hits = Hits()
        for name in scenarios:
            tried.append(name)
            found = self._kill(fault, name, hits)
            kills += [found] if found else []
            if found and not self._unit.every_scenario:
                break
        outcome = Outcome.KILLED if kills else Outcome.SURVIVED
        why = ""
        if not kills and tried and not any(self._right[name].verdict.good for name in tried):
            outcome = Outcome.NOT_APPLICABLE
            why = f"the family is wrong without it in {', '.join(tried)}"
        elif not kills and not hits.count:
            outcome = Outcome.NOT_APPLICABLE
            why = f"never took effect in {', '.join(tried)}" if tried else "no scenario applies"
        seconds = round(time.perf_counter() - start, 3)
        return self._trial(
            fault,
            outcome,
            kills=tuple(kills),
            hits=hits.count,
            tried=tuple(tried),
            why=why,
            seconds=seconds,
        )

    def _order(self, fault: Fault) -> Sequence[str]:
        if not self._unit.every_scenario:
            return fault.kills
        rest = (name for name in self._registry.scenarios if name not in fault.kills)
        return (*fault.kills, *rest)

    def _kill(self, fault: Fault, scenario: str, hits: Hits) -> Kill | None:
        case = self._case(scenario)
        if scenario not in self._right:
            self._right[scenario] = self._session.run(case)
        right = self._right[scenario]
        # What else is wrong is asked only where it may tell which checks alone catch something.
        until = None if self._unit.every_scenario else partial(tells, fault, right)
        wrong = self._session.run(case, around=partial(fault.inject, hits), until=until)
        if fault.priced and (dearer := costlier(right, wrong)):
            return Kill(scenario, "cost", dearer)
        if not killed(fault, right, wrong):
            return None
        found = new_findings(right, wrong.evidence)
        ratios = [ratio for finding in found if (ratio := _ratio(finding)) is not None]
        checks = tuple(sorted({finding.check for finding in found}))
        return Kill(scenario, wrong.verdict.value, checks, max(ratios, default=None))

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
            **found,
        )


def _ratio(finding: Finding) -> float | None:
    if not finding.difference or not finding.noise:  # another token without another number
        return None
    return float(finding.difference / finding.noise)


def trials(registry: Registry, unit: Unit) -> tuple[Trial, ...]:
    """All trials of a unit; a family that can't be loaded or described has none applicable."""
    faults = [registry.faults[name] for name in unit.faults]
    try:
        bench = Bench(registry, unit)
    except ConformanceError as error:
        return without(registry, unit, f"the family can't be loaded here: {error}")
    return tuple(bench.try_fault(fault) for fault in faults)


def without(registry: Registry, unit: Unit, why: str) -> tuple[Trial, ...]:
    """The trials of a family in which nothing could be tried."""
    return tuple(
        Trial(
            registry.faults[name].name,
            registry.faults[name].fault_class,
            unit.engine,
            unit.family,
            unit.dtype,
            unit.seed,
            Outcome.NOT_APPLICABLE,
            why=why,
        )
        for name in unit.faults
    )


def encode(trial: Trial) -> str:
    """The trial as one line of JSON, without the newline."""
    return msgspec.json.encode(trial).decode()
