"""How often explanations name the right place, measured on the defects in the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import msgspec

from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.faults import Fault, Hits
from conformance.core.faults.patching import together
from conformance.core.faults.traits import traits
from conformance.core.mends import Mend
from conformance.core.verdict import CaseId, CaseResult
from conformance.report.explanation import Explanation, Relative, Where
from conformance.run.case_judge import CaseJudge
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.explain.catalogue import sited
from conformance.tools.explain.explaining import explain


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A defect that was injected and explained.

    Attributes:
        wanted: the globs of the place that the defect breaks; empty if it has none.
        scenario: of the explained case; ``where``, ``entry`` and ``relatives`` are the
            explanation's.
        dtype: of the explained case.
        seconds: duration of the whole explanation.
        hit: whether the named place matches a glob in ``wanted``; ``None`` if that is empty or no
            case found the defect.
        entry_hit: whether the first cache entry that differs matches.
        class_hit: the rank of the defect's class among the named ones, from 1; 0 if absent.
        why: why there is no explanation.
    """

    fault: str
    family: str
    wanted: str
    scenario: str = ""
    where: Where | None = None
    entry: Where | None = None
    relatives: tuple[Relative, ...] = ()
    hit: bool | None = None
    entry_hit: bool | None = None
    class_hit: int = 0
    dtype: str = "float32"
    seconds: float = 0.0
    why: str = ""


def trials(
    registry: Registry, faults: list[Fault], families: list[str], dtype: str = "float32"
) -> Iterator[Trial]:
    """One trial for each fault, in the first family and scenario that find it.

    Known defects are mended where the mend does not change the single stream: otherwise an
    explanation might name the known defect's place.
    """
    session = Session(registry)
    shared = _Shared(session, dtype, CaseJudge(session, load_expectations()))
    for fault in faults:
        yield _trial(shared, fault, families)


@dataclass
class _Shared:
    """State shared by all faults: traits of families, and results of cases without a fault."""

    session: Session
    dtype: str
    judge: CaseJudge
    traits: dict[str, frozenset[str]] = field(default_factory=dict)
    right: dict[CaseId, CaseResult] = field(default_factory=dict)
    mends: dict[CaseId, tuple[Mend, ...]] = field(default_factory=dict)

    def traits_of(self, case: CaseId) -> frozenset[str]:
        name = f"{case.engine}/{case.family}"
        if name not in self.traits:
            self.traits[name] = traits(self.session.subject(case))
        return self.traits[name]

    def baseline(self, case: CaseId) -> CaseResult:
        if case not in self.right:
            found = self.session.run(case)
            self.mends[case] = self._mends_of(found)
            if self.mends[case]:
                found = self.session.run(case, around=lambda _: self.mended(case))
            self.right[case] = found
        return self.right[case]

    def mended(self, case: CaseId) -> AbstractContextManager[None]:
        """The mends of the known defects that the case shows without a fault."""
        return together(*(mend.repair(Hits()) for mend in self.mends[case]))

    def with_fault(self, case: CaseId, fault: Fault, _: str = "") -> AbstractContextManager[None]:
        """The fault, together with these mends."""
        return together(self.mended(case), fault.inject(Hits()))

    def _mends_of(self, found: CaseResult) -> tuple[Mend, ...]:
        mends = self.judge.mends_of(found)
        return () if any(mend.single_stream for mend in mends) else mends

    def plays(self, case: CaseId) -> bool:
        registry = self.session.registry
        engine = registry.engines[case.engine]
        family = registry.families[engine.library, case.family]
        return case.scenario in {s.name for s in registry.scenarios_for(engine, family)}


def _trial(shared: _Shared, fault: Fault, families: list[str]) -> Trial:
    why = "no family has what it needs"
    for family in families:
        for scenario in fault.scenarios:
            case = CaseId(fault.engine, family, scenario, shared.dtype, 0)
            try:
                if fault.lacks(shared.traits_of(case)) or not shared.plays(case):
                    continue
                right = shared.baseline(case)
                found = explain(
                    shared.session,
                    case,
                    around=partial(shared.with_fault, case, fault),
                    baseline=right,
                )
            except ConformanceError as error:
                why = str(error)
                continue
            return _judged(fault, case, found)
    return Trial(fault.key, "", fault.where, dtype=shared.dtype, why=why)


def _judged(fault: Fault, case: CaseId, found: Explanation) -> Trial:
    classes = [relative.fault_class for relative in found.relatives]
    named = classes.index(fault.fault_class) + 1 if fault.fault_class in classes else 0
    return Trial(
        fault.key,
        case.family,
        fault.where,
        case.scenario,
        found.where,
        found.entry,
        found.relatives,
        sited(fault, found.where) if fault.where else None,
        sited(fault, found.entry) if fault.where else None,
        named,
        case.dtype,
        found.seconds,
    )
