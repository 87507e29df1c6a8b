"""Results of places without a mutant, and whether an earlier mutant has left traces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.faults import Hits
from conformance.core.faults.patching import together
from conformance.core.mends import Mend
from conformance.core.user_cache import user_cache
from conformance.core.verdict import CaseId, CaseResult
from conformance.power.mutants.reach import Place
from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle_key import oracle_key
from conformance.run.case_judge import CaseJudge
from conformance.run.judging.judge import Until
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.explain.new_findings import new_findings

# Models that stay loaded in a process; a tiny one takes up to 100 MB.
_KEPT = 6

# The context for a run of an engine.
Put = Callable[[], AbstractContextManager[None]]


class TaintedError(ConformanceError):
    """A right result has become wrong without a mutant: an earlier one left traces."""


class Unmutated:
    """Runs places, and remembers their results without a mutant.

    Attributes:
        used: a mutant has been put in.
    """

    def __init__(self, registry: Registry) -> None:
        store = FamilyStore(user_cache() / "mutants" / "families", oracle_key)
        self._session = Session(registry, store=store, kept=_KEPT)
        self._judge = CaseJudge(self._session, load_expectations())
        self._right: dict[tuple[str, str], CaseResult] = {}
        self._mends: dict[tuple[str, str], tuple[Mend, ...]] = {}
        self._unsteady: set[tuple[str, str]] = set()
        self.used = False

    def right(self, place: Place) -> CaseResult | None:
        """The place's result; ``None`` if it differs from run to run.

        If the place shows known defects with mends, it is the result with these mends.

        Raises:
            TaintedError: the result differs from when the lines were recorded.
        """
        key = (place.case, place.schedule)
        if key not in self._right:
            found = self._session.run(place.id, only=(place.schedule,))
            if not place.good and (mends := self._repairing(found)):
                self._mends[key] = mends
                found = self.run(place)
            elif is_good(found) != place.good:
                if self.used:
                    raise TaintedError(f"{place.case}, {place.schedule}: {found.verdict} by itself")
                self._unsteady.add(key)
            self._right[key] = found
        return None if key in self._unsteady else self._right[key]

    def right_case(self, case: CaseId) -> CaseResult:
        """The result of a whole case, without mends."""
        key = (str(case), "")
        if key not in self._right:
            self._right[key] = self._session.run(case)
        return self._right[key]

    def run(
        self, place: Place, mutant: Put = nullcontext, until: Until | None = None
    ) -> CaseResult:
        """Run the place with the mutant, and with its known defects mended."""
        mends = self._mends.get((place.case, place.schedule), ())

        def around(_: str) -> AbstractContextManager[None]:
            return together(*(mend.repair(Hits()) for mend in mends), mutant())

        return self._session.run(place.id, around=around, only=(place.schedule,), until=until)

    def run_case(self, case: CaseId, mutant: Put) -> CaseResult:
        """Run a whole case with the mutant, without mends."""
        return self._session.run(case, around=lambda _: mutant())

    def holds(self, place: Place, right: CaseResult) -> bool:
        """Whether the place still has the same result as before, without a mutant."""
        again = self.run(place)
        return is_good(again) == is_good(right) and not new_findings(right, again.evidence)

    def _repairing(self, found: CaseResult) -> tuple[Mend, ...]:
        """The mends of the known defects that a result shows, except defects of single streams."""
        mends = self._judge.mends_of(found)
        return () if any(mend.single_stream for mend in mends) else mends


def is_good(result: CaseResult) -> bool:
    """Whether its schedules are right, ignoring what is missing because others were left out."""
    return all(s.verdict.good for s in result.schedules) and bool(result.schedules)
