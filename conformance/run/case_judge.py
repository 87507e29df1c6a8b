"""Judges a case: by its known defects, rerun with mends, and by reference engines.

The only place that combines these steps, for all commands and for assertions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from conformance.checks.expectations import Defect, Expectations
from conformance.core.mends import Mend
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.run.diagnosis import diagnose
from conformance.run.mending import Mending
from conformance.run.needs import with_needs
from conformance.run.session import Session
from conformance.run.showing import Showing
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
