"""Exceptions raised by the engine, runs that do not end, and requests without an answer."""

from __future__ import annotations

from conformance.checks.claims import broken
from conformance.checks.play import Play
from conformance.core.verdict import Finding, Verdict


def check_failure(play: Play) -> list[Finding]:
    """``crash``, ``unsupported`` or ``hang`` for each run that did not complete.

    ``protocol`` for work of an engine that went on without it.
    """
    findings = [
        Finding(
            Verdict.PROTOCOL,
            "failure",
            claim.where(step),
            schedule=play.schedule.name,
            mode=trace.mode,
            expected=claim.found,
            got=claim.said,
            cause=claim.cause,
        )
        for trace in play.traces[:2]
        for step, claim in broken(trace)
        if claim.failed
    ]
    for trace in play.traces:
        if trace.failure is not None:
            kind = Verdict.UNSUPPORTED if trace.failure.unsupported else Verdict.CRASH
            findings.append(
                Finding(
                    kind,
                    "failure",
                    f"the engine raised {trace.failure}",
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    expected="no exception",
                    got=f"{trace.failure.type_name}: {trace.failure.message}",
                )
            )
        elif trace.out_of_steps:
            why = next((c.where(step) for step, c in broken(trace) if c.failed), "")
            findings.append(
                Finding(
                    Verdict.HANG,
                    "failure",
                    why or f"requests were unfinished after {len(trace.steps)} steps",
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    expected=f"an end within {len(trace.steps)} steps",
                    got="unfinished requests",
                )
            )
    return findings
