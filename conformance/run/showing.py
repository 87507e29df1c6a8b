"""Which cases of a run show its known defects as released, and which are run mended alone.

A known defect mostly shows on many rungs. One of them is enough to see that it is still there; the
others can be run with it mended alone, all schedules of the tier: so a new defect shows in each of
them, and nothing is run twice.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, field

from conformance.checks.expectations import Defect, Expectations
from conformance.checks.expectations.entries import matches
from conformance.core.verdict import CaseId
from conformance.run.registry import Registry
from conformance.run.tiers import WHOLE, Tier
from conformance.scenarios.ladder import LADDER
from conformance.scenarios.workloads import is_workload

_RUNGS = {scenario.name: index for index, scenario in enumerate(LADDER)}
# Where one of these rungs of text fails, a workload fails, too.
_IN_WORKLOADS = frozenset({"ragged", "staggered"})

_Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Showing:
    """The part of the known defects in a run.

    Args:
        cases: the cases of the run, including those whose stored results are used.
    """

    known: Expectations
    registry: Registry
    tier: Tier
    cases: Collection[CaseId]
    _shows: dict[_Key, frozenset[CaseId]] = field(default_factory=dict, repr=False)
    _named: dict[_Key, tuple[Defect, ...]] = field(default_factory=dict, repr=False)

    def to_mend(self, case: CaseId) -> tuple[Defect, ...]:
        """The entries with which mended the case is run alone; none if it is run as released.

        It is run as released in the full tier; if it shows an entry that no lower rung of the run
        shows; and if it is not certain beforehand that it fails, or that all can be mended.
        """
        if self.tier is WHOLE or case not in self._group(case):
            return ()
        family = self.registry.family_of(case)
        if family.checkpoint is not None or not self._fails(case) or case in self._showing(case):
            return ()
        return tuple(entry for entry in self._about(case) if entry.shows_in(case.scenario))

    def _fails(self, case: CaseId) -> bool:
        """Whether the case surely fails as its entries say: none declares that it is refused."""
        refusals = (r for r in self.known.refusals if r.is_about(case.engine, case.family))
        if any(matches(case.scenario, r.scenarios) for r in refusals):
            return False
        if self._surely(case) or not is_workload(case.scenario):
            return bool(self._surely(case))
        about = [entry for entry in self._about(case) if entry.shows_in(case.scenario)]
        return any(not _IN_WORKLOADS.isdisjoint(entry.verdicts) for entry in about)

    def _surely(self, case: CaseId) -> tuple[Defect, ...]:
        """The entries that the case shows for certain, in this tier."""
        family = self.registry.family_of(case)
        keeps = functools.partial(self.tier.keeps, family, case.scenario)
        return tuple(
            entry
            for entry in self._about(case)
            if case.scenario in entry.verdicts
            and not entry.by_time
            and any(map(keeps, entry.schedules.get(case.scenario, ("",))))
        )

    def _about(self, case: CaseId) -> tuple[Defect, ...]:
        """The entries that name the family, for this release, device and dtype."""
        if _key(case) not in self._named:
            self._named[_key(case)] = self._naming(case)
        return self._named[_key(case)]

    def _naming(self, case: CaseId) -> tuple[Defect, ...]:
        if case.seed != 0:
            return ()  # with other weights and prompts, a defect may stay hidden
        engine = self.registry.engines[case.engine]
        device = self.registry.libraries[engine.library].device()
        versions = self.registry.versions_of(case.engine)
        return tuple(
            entry
            for entry in self.known.defects
            if matches(case.family, entry.families)
            and entry.is_about(case.engine, case.family)
            and matches(case.dtype, entry.dtypes)
            and device.startswith(entry.device)
            and entry.active(versions)
            and entry.released(versions)
        )

    def _group(self, case: CaseId) -> frozenset[CaseId]:
        """The cases of the run that differ from this one by their scenario alone."""
        return self._groups.get(_key(case), frozenset())

    @functools.cached_property
    def _groups(self) -> dict[_Key, frozenset[CaseId]]:
        found: dict[_Key, set[CaseId]] = {}
        for case in self.cases:
            found.setdefault(_key(case), set()).add(case)
        return {key: frozenset(group) for key, group in found.items()}

    def _showing(self, case: CaseId) -> frozenset[CaseId]:
        """The cases of its group that show its entries as released: few, and low rungs.

        Preferred are rungs of which the tier leaves nothing out: there each entry must show.
        """
        key = _key(case)
        if key not in self._shows:
            shown: set[str] = set()
            chosen: set[CaseId] = set()
            for one in sorted(self._group(case), key=self._order):
                own = {entry.id for entry in self._surely(one)}
                if not own <= shown:
                    shown |= own
                    chosen.add(one)
            self._shows[key] = frozenset(chosen)
        return self._shows[key]

    def _order(self, case: CaseId) -> tuple[bool, bool, int, str]:
        family = self.registry.family_of(case)
        left_out = self.tier.trims(family, case.scenario)
        rung = _RUNGS.get(case.scenario, len(_RUNGS))
        return self._fails(case), left_out, rung, case.scenario


def _key(case: CaseId) -> _Key:
    return case.engine, case.family, case.dtype, case.seed
