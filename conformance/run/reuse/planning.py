"""Which of the selected cases are run, and which have a result that is still valid."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from conformance.checks.expectations.rules import CHECK as EXPECTATIONS
from conformance.core.engine import Capability
from conformance.core.library_source import versions_of
from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.surroundings import LIBRARIES, family_digest
from conformance.run.diagnosis import CHECK as DIAGNOSIS
from conformance.run.registry import Registry
from conformance.run.reuse.dependencies import all_of
from conformance.run.reuse.dependency_recorder import reusable
from conformance.run.reuse.import_graph import reached
from conformance.run.reuse.result_store import ResultStore

Judge = Callable[[CaseResult], CaseResult | None]
"""A stored result, judged by the current known defects; ``None`` if it is not valid."""


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Attributes:
        play: cases to run, in the order of the selection.
        reused: stored results of other cases that are part of the run, judged.
        left_out: the last known result of each left-out case, by id; ``None`` if there is none.
    """

    play: tuple[CaseId, ...]
    reused: tuple[CaseResult, ...] = ()
    left_out: Mapping[str, CaseResult | None] = field(default_factory=dict)


class Reuse:
    """Finds results that are still valid."""

    def __init__(self, registry: Registry, store: ResultStore, tier: str, judge: Judge) -> None:
        self._registry, self._store, self._tier, self._judge = registry, store, tier, judge
        self._digests: dict[tuple[str, str], str] = {}
        self._graph = functools.cache(lambda *roots: reached(roots))

    def known(self, case: CaseId) -> CaseResult | None:
        """The stored result of a case, judged by the current known defects.

        The result of a failed case counts only with its diagnosis.
        """
        found = self._store.known(case, self._digest(case), self._tier)
        if found is None or not reusable(self._registry.engines[case.engine]):
            return None
        judged = self._judged(found)
        if judged is None:
            return None
        diagnosed = any(finding.check == DIAGNOSIS for finding in found.evidence)
        if not (judged.expected or diagnosed):
            return None
        return msgspec.structs.replace(judged, reused=True, key=self.key(case))

    def plan(self, cases: Iterable[CaseId]) -> Plan:
        """Run cases without a valid result; reuse the others' results."""
        play, reused = [], []
        for case in cases:
            found = self.known(case)
            if found is None:
                play.append(case)
            else:
                reused.append(found)
        return Plan(tuple(play), tuple(reused))

    def changed(self, cases: Iterable[CaseId]) -> Plan:
        """Run cases without a valid result, and leave out the rest."""
        plan = self.plan(cases)
        return Plan(plan.play, left_out={result.case: result for result in plan.reused})

    def since(
        self, cases: Iterable[CaseId], results: Iterable[CaseResult], failed: Collection[str]
    ) -> Plan:
        """Select cases whose key differs from the older run.

        Results stored here take precedence over the older run. Without one, a case that failed in
        its last run here is rerun, whatever the older run says.

        Args:
            cases: the selection.
            results: results of the older run.
            failed: ids of cases that failed in their last run here.
        """
        older = {result.case: result for result in results}
        play, left_out = [], {}
        for case in cases:
            found = older.get(str(case))
            same = found is not None and found.key and found.key == self.key(case)
            last = self.last((case,))[str(case)] if same else None
            if same and found and last is None and str(case) not in failed:
                last = self._judged(found)
            if last:
                left_out[last.case] = last
            else:
                play.append(case)
        return Plan(tuple(play), left_out=left_out)

    def touched(self, cases: Iterable[CaseId], modules: Collection[str]) -> Plan:
        """Run cases that depend on one of these modules, or whose dependencies are unknown.

        Without an earlier run, a case depends on what its libraries' import statements reach.
        """
        chosen = tuple(cases)
        play = tuple(case for case in chosen if self._touched(case, modules))
        return Plan(play, left_out=self.last(set(chosen).difference(play)))

    def last(self, cases: Iterable[CaseId]) -> dict[str, CaseResult | None]:
        """The stored results of cases, judged by the current known defects; including failures."""
        found = {case: self._store.known(case, self._digest(case), self._tier) for case in cases}
        return {str(case): result and self._judged(result) for case, result in found.items()}

    def key(self, case: CaseId) -> str:
        """A hash of everything the case depends on now; empty if its modules are unknown."""
        return self._store.key(case, self._digest(case), self._tier)

    def _touched(self, case: CaseId, modules: Collection[str]) -> bool:
        names = self._store.hangs_on(case)
        if names is None:
            names = self._reached(case)
        if names is None or not names.isdisjoint(modules):
            return True
        return any(all_of(module.partition(".")[0]) in names for module in modules)

    def _reached(self, case: CaseId) -> frozenset[str] | None:
        engine = self._registry.engines[case.engine]
        module = self._registry.families[engine.library, case.family].module
        served = (f"{engine.library}.server",) if Capability.SERVED in engine.capabilities else ()
        return self._graph(engine.library, f"{engine.library}.models.{module}", *served)

    def _judged(self, kept: CaseResult) -> CaseResult | None:
        return self._judge(of_today(bare(kept)))

    def _digest(self, case: CaseId) -> str:
        place = (self._registry.engines[case.engine].library, case.family)
        if place not in self._digests:
            self._digests[place] = family_digest(self._registry.families[place])
        return self._digests[place]


def of_today(result: CaseResult) -> CaseResult:
    """A stored result with current versions: a new commit may have changed other files."""
    named = {name for name in result.versions if not name.endswith(" source")}
    packages = sorted(named & {library.replace("_", "-") for library in LIBRARIES})
    today = {key: text for package in packages for key, text in versions_of(package).items()}
    kept = {n: v for n, v in result.versions.items() if n.removesuffix(" source") not in packages}
    return msgspec.structs.replace(result, versions=kept | today)


def bare(result: CaseResult) -> CaseResult:
    """A result as it was before known defects were considered."""
    evidence = tuple(f for f in result.evidence if f.check != EXPECTATIONS)
    return msgspec.structs.replace(
        result, expected=result.verdict.good, known=None, evidence=evidence, reused=False
    )
