"""Judges a case: by its known defects, rerun with mends, and by reference engines.

The only place that combines these steps, for all commands and for assertions; it also chooses
which cases of a run show known defects as released.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from conformance.checks.expectations import Defect, Expectations
from conformance.checks.expectations.entries import matches
from conformance.core.mends import Mend
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.run.diagnosis import diagnose
from conformance.run.mending import Mending
from conformance.run.needs import with_needs
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.run.tiers import WHOLE, Tier
from conformance.scenarios.ladder import LADDER
from conformance.scenarios.workloads import is_workload


class CaseJudge:
    """Judges cases of one session.

    Args:
        session: runs the cases.
        known: the known defects; ``None``: judge each case as if no defect were known.
        mends: rerun cases with known defects with those defects mended.
        like_module: apply the known defects of a module's tiny family to each family of that
            module; by default only to checkpoints.
        needs: say of the first failed workload of a family what it needs to fail.
        cases: the cases of the run. Of a known defect of its tier, one of them is run as released,
            and the others mended alone; by default all are run as released.
    """

    def __init__(
        self,
        session: Session,
        known: Expectations | None,
        *,
        mends: bool = True,
        like_module: bool = False,
        needs: bool = True,
        cases: Collection[CaseId] = (),
    ) -> None:
        self._session = session
        self._known = known
        self._mends = mends
        self._like_module = like_module
        self._needs = needs
        self._failed: set[tuple[str, str, str]] = set()
        self._named: set[tuple[str, str, str]] = set()
        self._cases = cases

    @functools.cached_property
    def _mending(self) -> Mending:
        return Mending(self._session)

    @functools.cached_property
    def _showing(self) -> Showing | None:
        if self._known is None or not self._mends:
            return None
        session = self._session
        return Showing(self._known, session.registry, session.tier, self._cases)

    def _to_mend(self, case: CaseId) -> tuple[Defect, ...]:
        """The entries with which mended the case is run alone, if it is."""
        return self._showing.to_mend(case) if self._showing is not None else ()

    def compared(self, released: CaseResult) -> CaseResult:
        """``released`` with ``expected`` and ``known`` set by the expectations."""
        if self._known is None:
            return released
        return self._known.apply_like(released, module=self._known_as(released))

    def played(self, case: CaseId, released: Callable[[], CaseResult]) -> CaseResult:
        """The case run, with its known defects mended alone if another case shows them.

        Args:
            released: runs it as released: also if it is not right with its known defects mended.
        """
        entries = self._to_mend(case)
        found = self._mending.alone(case, entries) if entries else None
        return released() if found is None else found

    def judged(self, case: CaseId, released: CaseResult) -> CaseResult:
        """``released`` judged, with the result of the case with its known defects mended."""
        result = self.compared(released)
        if self._known is None or not self._mends or result.mended_alone:
            return result
        return self.compared(self._mending.play(case, result, *self._entries(self._known, result)))

    def diagnosed(self, case: CaseId, result: CaseResult) -> CaseResult:
        """A judged result; a failed case is compared with engines right by construction.

        The first failed case of a family is compared with its library's server, too. With
        ``needs``, the first failed workload of a family also gets its smallest schedule.
        """
        failed = not result.expected and not result.verdict.good
        if not failed or result.verdict is Verdict.HANG:
            return result
        key = case.engine, case.family, case.dtype
        diagnosed = diagnose(self._session, case, result, servers=key not in self._failed)
        self._failed.add(key)
        if not self._needs or key in self._named or not is_workload(case.scenario):
            return diagnosed
        self._named.add(key)
        return with_needs(self._session, case, diagnosed, self._mended(case, result))

    def _mended(
        self, case: CaseId, result: CaseResult
    ) -> Callable[[Schedule], Iterable[Finding]] | None:
        """The findings about a schedule with the mends of the case; ``None`` if it has none."""
        mends = self.mends_of(result) if self._mends else ()
        return functools.partial(self._mending.small, case, mends=mends) if mends else None

    def judged_again(self, result: CaseResult) -> CaseResult | None:
        """An earlier result by the current expectations; ``None`` if the mends have changed."""
        if result.mended_alone and not self._alone_again(result):
            return None
        judged = self.compared(result)
        if self._known is None or not self._mends or result.mended_alone:
            return judged
        return judged if self._mending.holds(judged, *self._entries(self._known, judged)) else None

    def _alone_again(self, result: CaseResult) -> bool:
        """Whether the case would be run mended alone now, with the same mends."""
        entries = self._to_mend(CaseId.parse(result.case))
        return bool(entries) and self._mending.holds_alone(result, entries)

    def mends_of(self, released: CaseResult) -> tuple[Mend, ...]:
        """The mends with which the case is rerun; none if it is not."""
        if self._known is None:
            return ()
        judged = self.compared(released)
        return self._mending.mends_of(judged, *self._entries(self._known, judged))

    def _known_as(self, result: CaseResult) -> str:
        """The name of the tiny family whose entries apply to the result."""
        family = self._session.registry.family_of(CaseId.parse(result.case))
        like = self._like_module or family.checkpoint is not None
        return family.module if like else result.family

    def _entries(
        self, known: Expectations, result: CaseResult
    ) -> tuple[Sequence[Defect], Sequence[Defect]]:
        """The entries that the result shows, and the entries that may contribute."""
        own = known.to_mend(result)
        like = msgspec.structs.replace(result, family=self._known_as(result))
        return own if own[0] else known.to_mend(like)


# A known defect mostly shows on many rungs. One of them is enough to see that it is still there;
# the others can be run with it mended alone, all schedules of the tier: so a new defect shows in
# each of them, and nothing is run twice.
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
