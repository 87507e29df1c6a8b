"""Runs one schedule of a case and reports how it fails, if it does."""

from __future__ import annotations

from pathlib import Path

from conformance.checks import CHECKS, Play
from conformance.checks.forced import measure
from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError
from conformance.core.failures import failure_of
from conformance.core.schedule import Schedule, Weigh
from conformance.core.trace import Failure
from conformance.core.verdict import Finding, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.oracle_check import judge_oracle
from conformance.run.judging.playing import play_schedule
from conformance.scenarios import Scenario
from conformance.tools.repro.found import Kind, Symptom
from conformance.tools.repro.steps import by_steps

Observed = tuple[Symptom, Schedule]

# Scripts show no memory of these.
_NOT_SHOWN = (None, Weigh.CYCLES, Weigh.IDLE)
_NOT_WRONG = frozenset({Verdict.EXACT, Verdict.TIE, Verdict.VACUOUS, Verdict.UNSUPPORTED})


def observe(
    subject: Subject, engine: type[Engine], scenario: Scenario, schedule: Schedule
) -> Observed | None:
    """How the schedule fails, and the schedule with step numbers; ``None`` if it does not fail.

    The schedule is run once and the engine chooses all tokens, as in a script.
    """
    try:
        if scenario.oracle_only:
            return _single_stream(subject, schedule)
        played = play_schedule(subject, engine, schedule, once=True, enough=lambda _: True)
    except ConformanceError:
        return None
    except Exception as error:  # noqa: BLE001 - the library's failure is the result
        failure = failure_of(error, "decoding one request alone")
        return (
            None
            if failure.unsupported
            else (_crash(failure, Kind(batch=False, crash=True)), schedule)
        )
    return _together(played)


def _together(played: Play) -> Observed | None:
    (trace,) = played.traces
    findings = [f for check in CHECKS for f in check(played) if f.verdict not in _NOT_WRONG]
    if not findings:
        return None
    in_steps = by_steps(played.schedule, trace)
    worst = max(findings, key=lambda f: (f.verdict.severity, f.check == "probe"))
    if trace.failure is not None:
        return _crash(trace.failure, Kind(crash=True)), in_steps
    if worst.check == "probe":
        return Symptom(worst.verdict, Kind(called=True), worst.what, mark="probe"), in_steps
    if worst.check == "leak" and played.schedule.weigh not in _NOT_SHOWN:
        kind = Kind(weighed=str(played.schedule.weigh))
        return Symptom(worst.verdict, kind, worst.what, mark="leak"), in_steps
    kind = Kind(policy=worst.verdict is Verdict.POLICY)
    difference, noise = _figures(played)
    if kind.policy:
        difference, noise = worst.difference or 0.0, worst.noise or noise
    return Symptom(worst.verdict, kind, worst.what, difference, noise, _mark(worst)), in_steps


def _mark(finding: Finding) -> str:
    """The name of the check for findings that are not about numbers; empty for the others."""
    numbers = finding.check in ("forced", "free", "nonfinite", "policy", "twins", "stability")
    return "" if numbers else finding.check


def _figures(played: Play) -> tuple[float, float]:
    """The largest difference over all requests, and its noise, in nats."""
    found = [(0.0, 1e-6)]
    for request in played.schedule.requests:
        measured = measure(played, played.traces[0], request.request_id)
        if measured is not None:
            deviation, noise = measured
            step = int(deviation.difference.argmax())
            found.append((float(deviation.difference[step]), float(noise.full[step])))
    return max(found)


def _single_stream(subject: Subject, schedule: Schedule) -> Observed | None:
    outcome = judge_oracle(subject, [schedule])
    wanted = {request.request_id: request.max_tokens for request in schedule.requests}
    findings = [
        f
        for f in outcome.findings
        # The oracle keeps longer answers to the same prompt, which a script lacks.
        if f.verdict is Verdict.ORACLE and (f.step or 0) < wanted[f.request_id or ""]
    ]
    if not findings:
        return None
    worst = max(findings, key=lambda finding: finding.difference or 0.0)
    kind = Kind(batch=False, oracle="stateless" if worst.check == "stateless" else "pieces")
    figures = worst.difference or 0.0, worst.noise or 1e-6
    return Symptom(worst.verdict, kind, worst.what, *figures), schedule


def _crash(failure: Failure, kind: Kind) -> Symptom:
    place = Path(failure.frame.partition(":")[0]).name
    mark = f"{failure.type_name} {place}"
    return Symptom(Verdict.CRASH, kind, str(failure), mark=mark)
