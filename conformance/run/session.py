"""Runs cases in one process: models, oracles and noise are made once and shared."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import thread as pools
from pathlib import Path
from typing import Any

import msgspec

from conformance.backend.one_cpu import on_one_cpu
from conformance.backend.random_state import drawing_kept
from conformance.core.engine import Engine
from conformance.core.errors import MachineError, ModelError, NotOffered
from conformance.core.failures import failure_of, machine_problem
from conformance.core.family import Family
from conformance.core.faults.traits import code_traits
from conformance.core.library import Library
from conformance.core.phases import Phases
from conformance.core.representatives import representatives
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle import MIN_STEPS
from conformance.reference.subject import Around, Subject
from conformance.run.judging.discerning import discerning
from conformance.run.judging.judge import Outcome, Until, brief_for, judge_batched
from conformance.run.judging.oracle_check import judge_oracle
from conformance.run.judging.summing import result_of
from conformance.run.registry import Registry
from conformance.run.tiers import WHOLE, Tier
from conformance.scenarios.workloads import is_workload

# Number of loaded models: the cases of a family come in a row, in at most three dtypes.
_KEPT = 3


class Session:
    """Runs cases one after another; keeps what the next case of the same family can use.

    Args:
        tier: selects the schedules of a scenario.
        evaluate: compute each model call within the call, so that the calls' seconds include all of
            their cost. For benchmarks.
        store: keeps oracles of tiny families between runs.
        kept: how many models stay loaded.

    Attributes:
        tainted: a case leaked threads; later cases need another process.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        tier: Tier = WHOLE,
        evaluate: bool = False,
        store: FamilyStore | None = None,
        kept: int = _KEPT,
    ) -> None:
        self.registry = registry
        self.tier = tier
        self.phases = Phases()
        self.tainted = False
        self._evaluate = evaluate
        self._store, self._kept = store, kept
        self._subjects: OrderedDict[tuple[str, str, str, int], Subject | ModelError] = OrderedDict()
        self._traits: dict[tuple[str, str], tuple[str, ...]] = {}
        self._facts: dict[str, tuple[dict[str, str], str]] = {}

    def run(
        self,
        case: CaseId,
        *,
        around: Around = contextlib.nullcontext,
        until: Until | None = None,
        only: Collection[str] = (),
        instead: Sequence[Schedule] = (),
    ) -> CaseResult:
        """Run the case and judge it. A library's failure is a verdict, never an exception.

        Args:
            around: context for each run of the engine, by its schedule's name; used for faults.
            until: called for each run with its findings; once it returns true, the case ends.
            only: the schedules of the tier to run; default: all.
            instead: schedules to run in place of the scenario's own, whose witnesses they need not
                show.

        Raises:
            MachineError: the disk is full or a permission for a model's files is missing.
        """
        start = time.perf_counter()
        meter_seconds = 0.0
        subject = None
        try:
            subject = dataclasses.replace(self.subject(case), around=around)
            mark = len(subject.meter)
            self.phases.read(subject.meter)
            leaks = ThreadLeaks()
            with on_one_cpu(), drawing_kept():
                outcome = self._with_leaks(self._judged(subject, case, until, only, instead), leaks)
            meter_seconds = sum(call.seconds for call in subject.meter[mark:])
            self._keep(subject)
        except Exception as error:
            if problem := machine_problem(error):
                raise MachineError(problem) from error
            library = self.registry.libraries[self.registry.engines[case.engine].library]
            outcome = _failed(error, library)  # any exception of a library is a verdict
        seconds = time.perf_counter() - start
        result = self._result(case, outcome, seconds=seconds, forward_seconds=meter_seconds)
        if result.expected or subject is None:
            return result
        return msgspec.structs.replace(result, traits=self._traits_of(subject))

    def _judged(
        self,
        subject: Subject,
        case: CaseId,
        until: Until | None,
        only: Collection[str],
        instead: Sequence[Schedule],
    ) -> Outcome:
        engine = self.registry.engines[case.engine]
        scenario = self.registry.scenarios[case.scenario]
        # A workload's rows are in no other scenario, which would need more of their tokens.
        subject.oracle.least = 0 if is_workload(scenario.name) else MIN_STEPS
        if lacking := sorted(scenario.needs & engine.not_offered()):
            raise NotOffered(f"no {', '.join(lacking)}, as --not-offered says")
        plays = functools.partial(self.tier.keeps, subject.family, scenario.name)
        brief = dataclasses.replace(brief_for(subject, engine, case.seed), plays=plays)
        # A processor may know only prompts with media that it composed in this process.
        composed = any(request.media for schedule in instead for request in schedule.requests)
        made = scenario.make(brief) if composed or not instead else ()
        schedules = instead or [s for s in made if not only or s.name in only]
        if scenario.oracle_only:
            return discerning(judge_oracle(subject, schedules), subject, brief)
        if instead:
            bare = dataclasses.replace(scenario, witnesses=())
            return judge_batched(subject, engine, bare, schedules, until=until, twice=False)
        kept = self.tier.kept(subject.family, scenario.name, schedules)
        left_out = tuple(s.name for s in made if s not in kept)
        twice = self.tier.twice(subject.family, scenario.name)
        outcome = judge_batched(
            subject, engine, scenario, kept, left_out=left_out, until=until, twice=twice
        )
        return discerning(outcome, subject, brief)

    def _keep(self, subject: Subject) -> None:
        """Store new parts of the oracle; after leaked threads nothing is reliable any more."""
        if self._store is not None and not self.tainted:
            self._store.save(subject.file)

    def _with_leaks(self, outcome: Outcome, leaks: ThreadLeaks) -> Outcome:
        """The outcome, with an additional finding for leaked threads."""
        threads = leaks.find()
        if not threads:
            return outcome
        self.tainted = True
        findings = (*outcome.findings, finding_of(threads))
        return dataclasses.replace(outcome, findings=findings)

    def loaded(self, case: CaseId) -> Subject | None:
        """The case's model with its oracles, if it is loaded."""
        found = self._subjects.get(self._key(case))
        return None if isinstance(found, ModelError) else found

    def failed(self, case: CaseId) -> bool:
        """Whether the case's model could not be loaded."""
        return isinstance(self._subjects.get(self._key(case)), ModelError)

    def schedules(self, case: CaseId) -> Sequence[Schedule]:
        """All schedules that the case's scenario makes for its model and engine."""
        brief = brief_for(self.subject(case), self.registry.engines[case.engine], case.seed)
        return self.registry.scenarios[case.scenario].make(brief)

    def subject(self, case: CaseId) -> Subject:
        """The case's model with its oracles, loaded on first use.

        Raises:
            ModelError: the library cannot build or load it.
        """
        engine = self.registry.engines[case.engine]
        key = self._key(case)
        if key not in self._subjects:
            library = self.registry.libraries[engine.library]
            family = self.registry.family_of(case)
            if family.checkpoint is not None:
                self._subjects.clear()  # a real model's memory is counted once
            try:
                found = Subject.load(
                    library,
                    family,
                    dtype=case.dtype,
                    seed=case.seed,
                    phases=self.phases,
                    evaluate=self._evaluate,
                    store=self._store,
                )
                others = functools.cache(functools.partial(self._others, case))
                self._subjects[key] = dataclasses.replace(found, others=others)
            except ModelError as error:
                self._subjects[key] = error
            while len(self._subjects) > self._kept:
                self._subjects.popitem(last=False)
        kept = self._subjects[key]
        if isinstance(kept, ModelError):
            raise kept
        return kept

    def _others(self, case: CaseId) -> list[tuple[Family, Any]]:
        """Models of the case's family with other weights, first and last; between them of another.

        What is kept of the first or the last model then has the shapes of the case's own. None
        beside a checkpoint, which has one set of weights and may be all that memory holds.
        """
        own, registry = self.registry.family_of(case), self.registry
        if own.checkpoint is not None:
            return []
        library = registry.engines[case.engine].library
        names = representatives().beside.get(library, ())
        name = next((name for name in names if name != own.module), case.family)
        other = registry.family_of(msgspec.structs.replace(case, family=name))
        load = registry.libraries[library].load
        return [
            (family, load(family, dtype=case.dtype, seed=case.seed + 1 + at))
            for at, family in enumerate((own, other, other, own))
        ]

    def _key(self, case: CaseId) -> tuple[str, str, str, int]:
        family = self.registry.family_of(case)
        return (family.facts.library, family.name, case.dtype, case.seed)

    def _traits_of(self, subject: Subject) -> tuple[str, ...]:
        """Traits that relate a wrong result to known defects; empty if they can't be read."""
        key = (subject.library.name, subject.family.name)
        if key not in self._traits:
            try:
                found = code_traits(subject)
            except Exception:  # noqa: BLE001 - whatever a library raises, the case has its verdict
                found = frozenset()
            self._traits[key] = tuple(sorted(found))
        return self._traits[key]

    def _result(
        self, case: CaseId, outcome: Outcome, *, seconds: float, forward_seconds: float
    ) -> CaseResult:
        engine = self.registry.engines[case.engine]
        versions, device = self._environment(engine)
        return result_of(
            case,
            outcome,
            adds=self.registry.scenarios[case.scenario].summary,
            versions=versions,
            device=device,
            seconds=seconds,
            forward_seconds=forward_seconds,
        )

    def _environment(self, engine: type[Engine]) -> tuple[dict[str, str], str]:
        if engine.name not in self._facts:
            device = self.registry.libraries[engine.library].device()
            self._facts[engine.name] = (self.registry.versions_of(engine.name), device)
        return self._facts[engine.name]


def _failed(error: Exception, library: Library) -> Outcome:
    """The outcome of a case whose model or single stream already failed."""
    doing = "loading the model or decoding one request alone"
    ours = type(library).__module__.partition(".")[0] == "conformance"
    failure = failure_of(error, doing, theirs=not ours)
    verdict = Verdict.UNSUPPORTED if failure.unsupported else Verdict.CRASH
    finding = Finding(
        verdict,
        "failure",
        f"raised {failure}",
        expected="no exception",
        got=f"{failure.type_name}: {failure.message}",
        cause=f"{library.blamed} fails before any batch is made",
    )
    return Outcome((finding,), (), None)


# Threads that a case started and left running -----------------------------------------------------

GRACE_SECONDS = 1.0
"""How long after the end of a case its threads may take to end."""


class ThreadLeaks:
    """Made before a case; afterwards finds the threads that it started and that still run.

    Not counted are daemons, which the interpreter does not wait for, threads of a pool of
    ``concurrent.futures``, which are idle and end with the interpreter, and native threads.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def find(self) -> tuple[threading.Thread, ...]:
        """The leaked threads, after a moment to end."""
        deadline = time.monotonic() + GRACE_SECONDS
        for thread in self._running():
            thread.join(max(0.0, deadline - time.monotonic()))
        return self._running()

    def _running(self) -> tuple[threading.Thread, ...]:
        pooled = set(pools._threads_queues)
        now = (thread for thread in threading.enumerate() if not thread.daemon)
        return tuple(t for t in now if t not in self._before and t not in pooled)


def finding_of(threads: tuple[threading.Thread, ...]) -> Finding:
    """``leak``: which threads still run, and where each is."""
    frames = sys._current_frames()
    places = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        parts = Path(frame.f_code.co_filename).parts[-3:] if frame else ()
        place = f" in {'/'.join(parts)}:{frame.f_lineno}" if frame else ""
        places.append(f"{thread.name}{place}")
    return Finding(
        verdict=Verdict.LEAK,
        check="threads",
        what="threads that the case started still run after its end",
        expected="none",
        got=", ".join(places),
        cause="close() does not end them; they take time from all that comes after",
    )
