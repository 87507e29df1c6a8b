"""Explains a failing case: its ingredients, its first difference, the culprit, similar defects."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError
from conformance.core.failures import failure_of
from conformance.core.faults.traits import traits
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.reference.subject import Around, Subject
from conformance.report.explanation import (
    Explanation,
    Ingredient,
    LayerError,
    Relative,
    StepError,
    Where,
)
from conformance.report.message import worst_of
from conformance.run.diagnosis import MODEL, conclusion, opinions
from conformance.run.odd_one_out import by_number_of_rows
from conformance.run.session import Session
from conformance.tools.explain.catalogue import relatives
from conformance.tools.explain.ingredients import (
    Failing,
    accuses,
    by_dtype,
    first_failing,
    ingredients,
)
from conformance.tools.explain.locating import locate
from conformance.tools.explain.new_findings import new_findings
from conformance.tools.explain.recording import Recording, record


@dataclass(frozen=True)
class Begun:
    """Where a failure begins, and which defects it resembles."""

    failing: Failing
    recording: Recording
    where: Where
    entry: Where | None
    layers: tuple[LayerError, ...]
    relatives: tuple[Relative, ...]


def begin(
    session: Session,
    case: CaseId,
    *,
    around: Around = contextlib.nullcontext,
    baseline: CaseResult | None = None,
    schedule: str = "",
) -> Begun:
    """Where ``case`` begins to fail. See ``explain``."""
    failing = _failing(session, case, around, baseline, schedule)
    try:
        recording = record(failing.subject, failing.engine, failing.schedule, case.dtype)
    except ConformanceError:
        raise
    except Exception as error:
        failure = failure_of(error, "decoding its requests alone")
        raise ConformanceError(f"{case}: cannot be recorded: {failure}") from error
    located = locate(recording, aside=_aside(failing, baseline))
    where = located.where or _elsewhere(recording, failing.finding)
    like = relatives(
        (fault for fault in session.registry.faults.values() if fault.engine == case.engine),
        traits(failing.subject),
        scenario=case.scenario,
        verdict=failing.finding.verdict,
        where=where,
        entry=located.entry,
    )
    return Begun(failing, recording, where, located.entry, located.layers, like)


def explain(
    session: Session,
    case: CaseId,
    *,
    around: Around = contextlib.nullcontext,
    fault: str = "",
    baseline: CaseResult | None = None,
    schedule: str = "",
) -> Explanation:
    """Why ``case`` fails.

    Args:
        around: entered for each run of an engine, as a fault is; ``fault`` is that fault's key.
        baseline: the case without the fault; its findings do not count.
        schedule: the schedule to explain; by default the first that fails.

    Raises:
        ConformanceError: the case passes, has no such schedule, or no engine can run it.
    """
    start = time.perf_counter()
    begun = begin(session, case, around=around, baseline=baseline, schedule=schedule)
    failing = begun.failing
    found, suffices = ingredients(failing)
    said = _said(failing, baseline)
    return Explanation(
        case=str(case),
        schedule=failing.schedule.name,
        verdict=said.verdict.value,
        what=said.what,
        where=begun.where,
        entry=begun.entry,
        ingredients=(*found, *_dtype(session, failing, around)),
        suffices=suffices,
        layers=begun.layers,
        steps=_steps(failing.subject, begun.recording),
        opinion=_opinion(session, failing),
        relatives=begun.relatives,
        seconds=round(time.perf_counter() - start, 2),
        fault=fault,
    )


def _failing(
    session: Session, case: CaseId, around: Around, baseline: CaseResult | None, only: str
) -> Failing:
    registry = session.registry
    engine, scenario = registry.engines[case.engine], registry.scenarios[case.scenario]
    if scenario.oracle_only:
        raise ConformanceError(f"{case}: no engine plays it, so that there is no batch to explain")

    def unknown(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        new = new_findings(baseline, found) if baseline is not None else found
        return tuple(finding for finding in new if only in ("", finding.schedule))

    had = baseline.schedules if baseline is not None else ()
    wrong = {schedule.name for schedule in had if not schedule.verdict.good}

    def enough(found: Sequence[Finding]) -> bool:
        return any(accuses(f) and f.schedule not in wrong for f in unknown(tuple(found)))

    result = session.run(case, around=around, until=enough)
    found = unknown(result.evidence)
    subject = dataclasses.replace(session.subject(case), around=around)
    schedules = session.schedules(case)
    names = [schedule.name for schedule in schedules]
    if only and only not in names:
        raise ConformanceError(
            f"{case}: no schedule {only!r}; there are {', '.join(names) or 'none'}"
        )
    chosen = first_failing(schedules, found, wrong)
    if chosen is None and any(map(accuses, found)):
        raise ConformanceError(f"{case}: its findings are in no schedule that can be replayed")
    if chosen is None:
        its = (
            f"nothing is wrong in schedule {only!r}" if only else f"its verdict is {result.verdict}"
        )
        raise ConformanceError(f"{case}: {its}, so there is nothing to explain")
    return Failing(case, subject, engine, scenario, *chosen)


def _said(failing: Failing, baseline: CaseResult | None) -> Finding:
    """The schedule's worst finding, as a run says it.

    The finding by which it was chosen is only the first: a forced run comes before a free run.
    """
    try:
        every = failing.whole().findings
    except ConformanceError:
        return failing.finding
    new = new_findings(baseline, every) if baseline is not None else every
    return worst_of(list(filter(accuses, new))) or failing.finding


def _aside(failing: Failing, baseline: CaseResult | None) -> frozenset[str]:
    """The other requests of the schedule that are wrong without the fault as well."""
    evidence = baseline.evidence if baseline is not None else ()
    wrong = {f.request_id for f in evidence if f.schedule == failing.schedule.name and accuses(f)}
    return frozenset(name for name in wrong if name and name != failing.finding.request_id)


def _elsewhere(recording: Recording, finding: Finding) -> Where:
    """The place of a failure outside the model's passes: an exception, or another output."""
    failure = recording.trace.failure
    if failure is not None:
        return Where(f"crash:{failure.frame}", detail=f"{failure.type_name}: {failure.message}")
    named = finding.request_id
    for name, want in recording.want.items():
        got = recording.trace.stream(name)
        if got.logprobs is None or want.logprobs is None:
            continue
        steps = min(len(got.logprobs), len(want.logprobs))
        apart = _apart(got.logprobs[:steps], want.logprobs[:steps])
        wrong = np.flatnonzero(~(apart < 1e-2))
        if len(wrong):
            return Where(
                "output:logprobs",
                name,
                position=int(wrong[0]),
                detail="the model's are the single stream's, the engine's output differs",
            )
    return Where(
        f"output:{finding.check}",
        named,
        finding.row,
        finding.step,
        detail="every pass that was compared is the single stream's; "
        f"{finding.check}: {finding.what}",
    )


def _dtype(session: Session, failing: Failing, around: Around) -> tuple[Ingredient, ...]:
    if failing.case.dtype == "float32":
        return ()
    result = session.run(
        msgspec.structs.replace(failing.case, dtype="float32"),
        around=around,
        until=lambda found: any(map(accuses, found)),
    )
    return (by_dtype(failing, result.verdict),)


def _steps(subject: Subject, recording: Recording) -> tuple[StepError, ...]:
    """The largest difference at each step, for each request with full logprobs."""
    schedule = recording.trace.schedule
    found = []
    for request in schedule.requests:
        name = request.request_id
        got, want = recording.trace.stream(name), recording.want[name]
        if got.logprobs is None or want.logprobs is None:
            continue
        noise = subject.oracle.envelope(request, schedule.options, schedule).full
        for step, (mine, theirs) in enumerate(zip(got.logprobs, want.logprobs, strict=False)):
            apart = float(_apart(mine, theirs))
            error = apart if math.isfinite(apart) else None
            found.append(StepError(name, step, error, float(noise[step])))
    return tuple(found)


def _apart(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The largest difference of logprobs ``[..., vocab]``; infinite if only one side is finite."""
    with np.errstate(invalid="ignore"):  # a masked token is minus infinity on both sides
        apart = np.where(mine == theirs, 0.0, np.abs(mine - theirs))
    found: np.ndarray = np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(axis=-1)
    return found


def _verdict_on(failing: Failing, engine: type[Engine]) -> Verdict:
    try:
        return failing.whole(engine).verdict
    except ConformanceError:
        return Verdict.UNSUPPORTED


def _opinion(session: Session, failing: Failing) -> str:
    engines = session.registry.engines
    verdicts = {
        name: _verdict_on(failing, engines[name]) for name in opinions(session, failing.case)
    }
    text = conclusion(verdicts)
    if text.startswith(MODEL):
        text = by_number_of_rows(failing.subject, [failing.schedule], [failing.finding]) or text
    return text
