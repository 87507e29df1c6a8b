"""Runs the schedules that reach a mutant until a check detects it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

from conformance.core.faults import Fault
from conformance.core.faults.costs import costlier
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.power.mutants.cache_trials import CacheTrials
from conformance.power.mutants.definitions import InvalidMutantError, SameCodeError
from conformance.power.mutants.mutant_plan import Task
from conformance.power.mutants.property_trials import PropertyTrials, all_properties
from conformance.power.mutants.putting_in import PutIn
from conformance.power.mutants.reach import Place
from conformance.power.mutants.unmutated import TaintedError, Unmutated
from conformance.power.mutation.killing import detected, killed
from conformance.report.mutants import Fate, Mutant, MutantKill, MutantResult
from conformance.run.judging.witnessed import WITNESS
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.explain.new_findings import new_findings

# The number of schedules that run before the tests that need no model.
_FEW = 6
# The number of cases that run with the mutant in both streams, after the one that detected it.
_BOTH_MOST = 6
# The number of whole cases that run to see whether a witness is missing.
_WITNESS_MOST = 8
# The limit of a run: a multiple of its time without the mutant, plus some seconds.
_TIMES, _SECONDS = 20.0, 30.0
# Building a model and its single streams again, or running a whole case, may take this much longer.
_SECONDS_MORE = 90.0
_ORACLE = "repeat"
_UNREAD = "no run reads this value: each call gives another one, or there is none"

# Called before each run with the place, its limit in seconds, and whether the mutant is in.
Announce = Callable[[Place, float, bool], None]


class _End(NamedTuple):
    """The end of a mutant's trial."""

    fate: Fate
    kill: MutantKill | None = None
    played: int = 0
    why: str = ""


class Trials:
    """Tries mutants one after another in this process; models and right results are kept.

    Attributes:
        tainted: the last mutant left traces, so later mutants need a new process.
    """

    def __init__(self, registry: Registry, announce: Announce) -> None:
        self._registry = registry
        self._announce = announce
        self._unmutated = Unmutated(registry)
        self._caches = CacheTrials(self._say_own)
        self._properties = PropertyTrials(all_properties(registry), self._say_own)
        # The first mutant that was put in: no earlier one can have left traces.
        self._first: Mutant | None = None
        self.tainted = False

    def play(self, task: Task) -> MutantResult:
        """The fate of a mutant.

        Raises:
            TaintedError: the result may come from an earlier mutant; try it in a new process.
        """
        start = time.perf_counter()
        try:
            end = self._play(task, PutIn(task.mutant))
        except SameCodeError as error:
            end = _End(Fate.EQUIVALENT, why=str(error))
        except InvalidMutantError as error:
            end = _End(Fate.INVALID, why=str(error))
        return MutantResult(
            task.mutant,
            task.library,
            end.fate,
            versions=self._registry.libraries[task.library].versions(),
            kill=end.kill,
            played=end.played,
            reaching=task.reaching,
            unplayed=task.unplayed if end.fate is Fate.SURVIVED else 0,
            why=end.why,
            seconds=round(time.perf_counter() - start, 3),
        )

    def _play(self, task: Task, put_in: PutIn) -> _End:
        self._first = self._first or task.mutant
        lost: dict[str, Place] = {}
        end = (
            self._by_schedules(task, put_in, lost, range(_FEW))
            or self._by_own_tests(task, put_in)
            or self._by_schedules(task, put_in, lost, range(_FEW, len(task.places)))
            or self._by_witness(put_in, list(lost.values()), len(task.places))
        )
        unread = end.fate is Fate.SURVIVED and put_in.is_value and not self._is_read(put_in, task)
        return _End(Fate.UNREACHED, None, end.played, _UNREAD) if unread else end

    def _by_schedules(
        self, task: Task, put_in: PutIn, lost: dict[str, Place], numbers: range
    ) -> _End | None:
        """The fate by these places of the task; ``None`` if none detects the mutant.

        Args:
            lost: collects a place of each case that has lost a witness.
            numbers: the places' numbers, from 0.
        """
        fault = as_fault(task.mutant)
        for number in numbers:
            if number >= len(task.places):
                break
            place = task.places[number]
            self._say(place, anew=True)
            right = self._unmutated.right(place)
            if right is None:
                continue
            self._say(place, active=True)
            self._unmutated.used = True
            until = partial(detected, fault, right)
            wrong = self._unmutated.run(place, put_in.active, until)
            kill = kill_of(fault, right, wrong, place)
            if kill is None:
                if _lost_witness(right, wrong):
                    lost.setdefault(place.case, place)
                continue
            self._check_afterwards(task, place, right)
            if place.id.family in task.shared:
                return self._in_both(fault, put_in, task, number, kill)
            return _End(Fate.KILLED, kill, number)
        return None

    def _by_own_tests(self, task: Task, put_in: PutIn) -> _End | None:
        """The fate by the tests of functions and caches, without a model; ``None`` if they pass."""
        kill = self._properties.kill(task.library, task.mutant, put_in)
        kill = kill or self._caches.kill(task.mutant, put_in)
        return _End(Fate.KILLED, kill, min(_FEW, len(task.places))) if kill else None

    def _is_read(self, put_in: PutIn, task: Task) -> bool:
        """Whether a run fails when the mutant's default or constant fails on being read."""
        fault = as_fault(task.mutant)
        for place in task.places:
            right = self._unmutated.right(place)
            self._say(place, active=True)
            until = partial(detected, fault, right) if right is not None else None
            wrong = self._unmutated.run(place, put_in.unread, until)
            if right is not None and kill_of(fault, right, wrong, place) is not None:
                return True
        return self._properties.reads(task.library, task.mutant, put_in)

    def _by_witness(self, put_in: PutIn, places: list[Place], played: int) -> _End:
        """The end by whole cases that have lost their witness, if any.

        Args:
            places: one for each case in which a schedule lost a witness.
        """
        for place in places[:_WITNESS_MOST]:
            self._say(place, anew=True)
            right = self._unmutated.right_case(place.id)
            self._say(place, anew=True, active=True)
            wrong = self._unmutated.run_case(place.id, put_in.active)
            had = {finding.what for finding in right.evidence}
            for found in wrong.evidence:
                new = found.verdict is Verdict.VACUOUS and found.what not in had
                if new and found.check == WITNESS:
                    verdict = Verdict.VACUOUS.value
                    kill = MutantKill(place.case, "", verdict, (WITNESS,), found.what)
                    return _End(Fate.KILLED, kill, played)
        return _End(Fate.SURVIVED, None, played)

    def _check_afterwards(self, task: Task, place: Place, right: CaseResult) -> None:
        """Check that the place is as before without the mutant; else the process is ``tainted``.

        Raises:
            TaintedError: the place differs, and an earlier mutant may be the reason.
        """
        self._say(place, anew=True)
        if self._unmutated.holds(place, right):
            return
        if self._first is not task.mutant:
            raise TaintedError(f"{place.case}, {place.schedule}: not as before afterwards")
        self.tainted = True

    def _in_both(
        self, fault: Fault, put_in: PutIn, task: Task, number: int, kill: MutantKill
    ) -> _End:
        """The fate if the single stream also runs the code: a library's defect would be in both.

        A few cases run with new single streams made with the mutant, among them the case that
        compares the single stream with the pass without a cache.
        """
        first = task.places[number - 1]
        case = first.id
        oracle = CaseId(case.engine, case.family, _ORACLE, case.dtype, case.seed)
        more = [p for p in task.places if p.id.family == case.family and p != first]
        places = (first, Place(str(oracle), "", 0.0, good=True), *more[: _BOTH_MOST - 1])
        for tried, place in enumerate(places, start=number + 1):
            self._say(place, anew=True)
            only = (place.schedule,) if place.schedule else ()
            right = self._unmutated.right(place) if only else self._unmutated.right_case(oracle)
            self._say(place, anew=True, active=True)
            with put_in.active():
                wrong = Session(self._registry).run(place.id, only=only)
            if right is not None and (found := kill_of(fault, right, wrong, place)):
                return _End(Fate.KILLED, found, tried)
        why = f"{kill.case} detects it only if the single stream is without it"
        return _End(Fate.SAME, kill, number + len(places), why)

    def _say_own(self, place: Place, active: bool) -> None:  # noqa: FBT001
        self._say(place, active=active)

    def _say(self, place: Place, *, anew: bool = False, active: bool = False) -> None:
        more = _SECONDS_MORE if anew else 0.0
        self._announce(place, _SECONDS + more + _TIMES * place.seconds, active)


def as_fault(mutant: Mutant) -> Fault:
    """The mutant as a fault, for the checks of faults: any crash or hang counts."""

    def inject(_: object) -> AbstractContextManager[None]:
        return nullcontext()

    return Fault(mutant.name, "mutant", "", "", "", (), (), inject, crash=True)


def kill_of(fault: Fault, right: CaseResult, wrong: CaseResult, place: Place) -> MutantKill | None:
    """The difference between the runs with and without a mutant; ``None`` if no check sees any.

    As with faults, checks of costs also see a run that only costs more. A request that is refused
    only with the mutant counts too.
    """
    found = [f for f in new_findings(right, wrong.evidence) if detected(fault, right, [f])]
    if found or killed(fault, right, wrong):
        worst = max(found, key=lambda f: f.verdict.severity, default=None)
        verdict = worst.verdict if worst is not None else wrong.verdict
        checks = tuple(sorted({f.check for f in found}))
        what = worst.what if worst is not None else ""
        return MutantKill(place.case, place.schedule, verdict.value, checks, what)
    if refused := _refused(right, wrong):
        kind = Verdict.UNSUPPORTED.value
        return MutantKill(place.case, place.schedule, kind, (refused.check,), refused.what)
    if dearer := costlier(right, wrong):
        return MutantKill(place.case, place.schedule, "cost", dearer, f"more {', '.join(dearer)}")
    return None


def _refused(right: CaseResult, wrong: CaseResult) -> Finding | None:
    """The refusal of a schedule that is right without the mutant."""
    good = {schedule.name for schedule in right.schedules if schedule.verdict.good}
    refusals = (f for f in wrong.evidence if f.verdict is Verdict.UNSUPPORTED)
    return next((f for f in refusals if f.schedule in good), None)


def _lost_witness(right: CaseResult, wrong: CaseResult) -> bool:
    """Whether the schedule has lost a witness that it had without the mutant."""
    shown = {witness.name for witness in wrong.witnesses if witness.schedules}
    return any(witness.schedules and witness.name not in shown for witness in right.witnesses)
