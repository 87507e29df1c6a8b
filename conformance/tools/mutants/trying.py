"""Plays a mutant in the schedules that reach it, until a check detects it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from conformance.core.errors import ConformanceError
from conformance.core.faults import Fault
from conformance.core.faults.costs import costlier
from conformance.core.user_cache import user_cache
from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle_key import oracle_key
from conformance.report.mutants import Fate, Mutant, MutantKill, MutantResult
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.mutants.choosing import Task
from conformance.tools.mutants.putting_in import InvalidMutantError, PutIn, SameCodeError
from conformance.tools.mutants.reach import Place
from conformance.tools.mutation.killing import detected, killed, new_findings

# Models that stay loaded in a process; a tiny one takes up to 100 MB.
_KEPT = 6
# Cases that are played with the mutant in both streams, after the one that detected it.
_BOTH_MOST = 6
# How long a run may take: so many times what it took without the mutant, and so many seconds.
_TIMES, _SECONDS = 20.0, 30.0
# Making a model and its single streams anew may take so much longer.
_SECONDS_ANEW = 90.0
_ORACLE = "repeat"

# Called before each run: the place, the seconds that it may take, whether the mutant is in.
Announce = Callable[[Place, float, bool], None]


class TaintedError(ConformanceError):
    """What was right before is not right any more without a mutant: an earlier one left traces."""


class Trials:
    """Tries mutants one after another in this process; models and right results are kept.

    Attributes:
        tainted: the last mutant left traces; what comes next belongs in another process.
    """

    def __init__(self, registry: Registry, announce: Announce) -> None:
        self._registry = registry
        self._announce = announce
        store = FamilyStore(user_cache() / "mutants" / "families", oracle_key)
        self._session = Session(registry, store=store, kept=_KEPT)
        self._right: dict[tuple[str, str], CaseResult] = {}
        self._unsteady: set[tuple[str, str]] = set()
        # The mutant that was put in first; none of another can have left traces before it.
        self._first: Mutant | None = None
        self._used = False
        self.tainted = False

    def play(self, task: Task) -> MutantResult:
        """The fate of a mutant.

        Raises:
            TaintedError: what was seen may come from an earlier mutant; try it in a new process.
        """
        start = time.perf_counter()
        found = self._play(task)
        return MutantResult(
            task.mutant,
            task.library,
            found[0],
            versions=self._registry.libraries[task.library].versions(),
            kill=found[1],
            played=found[2],
            reaching=task.reaching,
            unplayed=task.unplayed if found[0] is Fate.SURVIVED else 0,
            why=found[3],
            seconds=round(time.perf_counter() - start, 3),
        )

    def _play(self, task: Task) -> tuple[Fate, MutantKill | None, int, str]:
        try:
            put_in = PutIn(task.mutant)
        except SameCodeError as error:
            return Fate.EQUIVALENT, None, 0, str(error)
        except InvalidMutantError as error:
            return Fate.INVALID, None, 0, str(error)
        fault = as_fault(task.mutant, put_in)
        self._first = self._first or task.mutant
        alone = self._first is task.mutant
        for number, place in enumerate(task.places, start=1):
            kill = self._kill(fault, put_in, place, alone=alone)
            if kill is None:
                continue
            if place.id.family not in task.shared:
                return Fate.KILLED, kill, number, ""
            return self._in_both(fault, put_in, task, number, kill)
        return Fate.SURVIVED, None, len(task.places), ""

    def _kill(self, fault: Fault, put_in: PutIn, place: Place, *, alone: bool) -> MutantKill | None:
        """How the place detects the mutant in the engine's runs; ``None`` if it does not."""
        right = self._right_result(place)
        if (place.case, place.schedule) in self._unsteady:
            return None
        self._say(place, active=True)
        self._used = True
        wrong = self._session.run(
            place.id,
            around=lambda _: put_in.active(),
            only=(place.schedule,),
            until=partial(detected, fault, right),
        )
        kill = _kill_of(fault, right, wrong, place)
        if kill is not None:
            self._check_afterwards(place, right, alone=alone)
        return kill

    def _right_result(self, place: Place) -> CaseResult:
        """The result without a mutant.

        Raises:
            TaintedError: it is not what it was when the lines were recorded.
        """
        key = (place.case, place.schedule)
        if key not in self._right:
            self._say(place, anew=True)
            found = self._session.run(place.id, only=(place.schedule,))
            if _good(found) != place.good:
                if self._used:
                    raise TaintedError(f"{place.case}, {place.schedule}: {found.verdict} by itself")
                self._unsteady.add(key)  # wrong in some runs: nothing can be seen there
            self._right[key] = found
        return self._right[key]

    def _check_afterwards(self, place: Place, right: CaseResult, *, alone: bool) -> None:
        """Without the mutant the place must be as before; else this process is ``tainted``.

        Raises:
            TaintedError: it is not, and an earlier mutant may be the reason.
        """
        self._say(place)
        again = self._session.run(place.id, only=(place.schedule,))
        if _good(again) != _good(right) or new_findings(right, again.evidence):
            if not alone:
                raise TaintedError(f"{place.case}, {place.schedule}: {again.verdict} afterwards")
            self.tainted = True

    def _in_both(
        self, fault: Fault, put_in: PutIn, task: Task, number: int, kill: MutantKill
    ) -> tuple[Fate, MutantKill | None, int, str]:
        """The fate where the single stream runs the code, too: a defect of the library is in both.

        A few cases are played with single streams that are made anew with the mutant, among them
        the one that compares the single stream with the pass without a cache.
        """
        first = task.places[number - 1]
        others = [p for p in task.places if p.id.family == first.id.family and p != first]
        tried = 0
        for place in (first, None, *others[: _BOTH_MOST - 1]):
            case = first.id if place is None else place.id
            only = () if place is None else (place.schedule,)
            if place is None:
                case = CaseId(case.engine, case.family, _ORACLE, case.dtype, case.seed)
            right = self._right_oracle(case) if place is None else self._right_result(place)
            self._say(place or first, anew=True, active=True)
            with put_in.active():
                wrong = Session(self._registry).run(case, only=only)
            tried += 1
            at = place or Place(str(case), "", 0.0, good=_good(right))
            found = _kill_of(fault, right, wrong, at)
            if found is not None:
                alone = self._first is task.mutant
                self._check_afterwards(first, self._right_result(first), alone=alone)
                return Fate.KILLED, found, number + tried, ""
        why = f"{kill.case} detects it only if the single stream is without it"
        return Fate.SAME, kill, number + tried, why

    def _right_oracle(self, case: CaseId) -> CaseResult:
        key = (str(case), "")
        if key not in self._right:
            self._right[key] = self._session.run(case)
        return self._right[key]

    def _say(self, place: Place, *, anew: bool = False, active: bool = False) -> None:
        more = _SECONDS_ANEW if anew else 0.0
        self._announce(place, _SECONDS + more + _TIMES * place.seconds, active)


def as_fault(mutant: Mutant, put_in: PutIn | None = None) -> Fault:
    """The mutant as the checks of faults know one: any crash or hang is its doing."""

    def inject(_: object) -> AbstractContextManager[None]:
        return put_in.active() if put_in is not None else nullcontext()

    return Fault(mutant.name, "mutant", "", "", "", (), (), inject, crash=True)


def _kill_of(fault: Fault, right: CaseResult, wrong: CaseResult, place: Place) -> MutantKill | None:
    found = [f for f in new_findings(right, wrong.evidence) if detected(fault, right, [f])]
    if found or killed(fault, right, wrong):
        worst = max(found, key=lambda f: f.verdict.severity, default=None)
        verdict = worst.verdict if worst is not None else wrong.verdict
        checks = tuple(sorted({f.check for f in found}))
        what = worst.what if worst is not None else ""
        return MutantKill(place.case, place.schedule, verdict.value, checks, what)
    if dearer := costlier(right, wrong):
        return MutantKill(place.case, place.schedule, "cost", dearer, f"more {', '.join(dearer)}")
    return None


def _good(result: CaseResult) -> bool:
    """Whether its schedules are right; what a case lacks for the others being left out is not."""
    return all(s.verdict.good for s in result.schedules) and bool(result.schedules)
