"""Which of the selected cases are played, and which have a result that still holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from conformance.checks.expectations.rules import CHECK as EXPECTATIONS
from conformance.core.library_source import versions_of
from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.surroundings import LIBRARIES, family_digest
from conformance.run.diagnosis import CHECK as DIAGNOSIS
from conformance.run.registry import Registry
from conformance.run.reuse.dependencies import all_of
from conformance.run.reuse.dependency_recorder import reusable
from conformance.run.reuse.result_store import ResultStore

Judge = Callable[[CaseResult], CaseResult | None]
"""A kept result as it counts today; ``None`` if it does not."""


@dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
        play: cases to play, in the order of the selection.
        reused: results of the others that are part of the run, judged.
        left_out: the last known result of each case that is left out, by id; ``None`` if there
            is none.
    """

    play: tuple[CaseId, ...]
    reused: tuple[CaseResult, ...] = ()
    left_out: Mapping[str, CaseResult | None] = field(default_factory=dict)


class Reuse:
    """Finds results that still hold."""

    def __init__(self, registry: Registry, store: ResultStore, tier: str, judge: Judge) -> None:
        self._registry, self._store, self._tier, self._judge = registry, store, tier, judge
        self._digests: dict[tuple[str, str], str] = {}

    def known(self, case: CaseId) -> CaseResult | None:
        """The kept result of a case, judged by the known defects of today.

        One that fails counts only with its diagnosis.
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
        """Play what is not known."""
        play, reused = [], []
        for case in cases:
            found = self.known(case)
            if found is None:
                play.append(case)
            else:
                reused.append(found)
        return Plan(tuple(play), tuple(reused))

    def changed(self, cases: Iterable[CaseId]) -> Plan:
        """Play what is not known, and leave out the rest."""
        plan = self.plan(cases)
        return Plan(plan.play, left_out={result.case: result for result in plan.reused})

    def since(
        self, cases: Iterable[CaseId], results: Iterable[CaseResult], failed: Collection[str]
    ) -> Plan:
        """Play what has not the key that it has in the results of an older run.

        What was kept here counts before those results. Without it, a case that failed when it was
        last played is played, whatever they say.

        Args:
            cases: the selection.
            results: of the older run.
            failed: the ids of cases that failed when they were last played here.
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
        """Play what hangs on one of these modules, or on what is not known."""
        chosen = tuple(cases)
        play = tuple(case for case in chosen if self._touched(case, modules))
        return Plan(play, left_out=self.last(set(chosen).difference(play)))

    def last(self, cases: Iterable[CaseId]) -> dict[str, CaseResult | None]:
        """The kept results of cases, judged by the known defects of today; also of failures."""
        found = {case: self._store.known(case, self._digest(case), self._tier) for case in cases}
        return {str(case): result and self._judged(result) for case, result in found.items()}

    def key(self, case: CaseId) -> str:
        """A hash of all that the case hangs on now; empty if its modules are not known."""
        return self._store.key(case, self._digest(case), self._tier)

    def _touched(self, case: CaseId, modules: Collection[str]) -> bool:
        names = self._store.hangs_on(case)
        if names is None or not names.isdisjoint(modules):
            return True
        return any(all_of(module.partition(".")[0]) in names for module in modules)

    def _judged(self, kept: CaseResult) -> CaseResult | None:
        return self._judge(of_today(bare(kept)))

    def _digest(self, case: CaseId) -> str:
        place = (self._registry.engines[case.engine].library, case.family)
        if place not in self._digests:
            self._digests[place] = family_digest(self._registry.families[place])
        return self._digests[place]


def of_today(result: CaseResult) -> CaseResult:
    """A kept result with the versions of today: a checkout may have moved on in other files."""
    named = {name for name in result.versions if not name.endswith(" source")}
    packages = sorted(named & {library.replace("_", "-") for library in LIBRARIES})
    today = {key: text for package in packages for key, text in versions_of(package).items()}
    kept = {n: v for n, v in result.versions.items() if n.removesuffix(" source") not in packages}
    return msgspec.structs.replace(result, versions=kept | today)


def bare(result: CaseResult) -> CaseResult:
    """A result as it was before it was judged by known defects."""
    evidence = tuple(f for f in result.evidence if f.check != EXPECTATIONS)
    return msgspec.structs.replace(
        result, expected=result.verdict.good, known=None, evidence=evidence, reused=False
    )
