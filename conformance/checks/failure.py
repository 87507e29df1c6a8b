"""Exceptions raised by the engine, runs that do not end, and requests without an answer."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_failure(play: Play) -> list[Finding]:
    """``crash``, ``unsupported`` or ``hang`` for each run that did not complete.

    ``protocol`` for work of an engine that went on without it.
    """
    findings = [f for trace in play.traces[:2] for f in _unanswered(play, trace)]
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
            findings.append(
                Finding(
                    Verdict.HANG,
                    "failure",
                    f"requests were unfinished after {len(trace.steps)} steps",
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    expected=f"an end within {len(trace.steps)} steps",
                    got="unfinished requests",
                )
            )
    return findings


def _unanswered(play: Play, trace: Trace) -> Iterator[Finding]:
    """The first of each kind of work that failed."""
    seen: set[str] = set()
    for step in trace.steps:
        for claim in step.output.claims:
            if claim.holds or not claim.failed or claim.what in seen:
                continue
            seen.add(claim.what)
            yield Finding(
                Verdict.PROTOCOL,
                "failure",
                claim.where(step.index),
                schedule=play.schedule.name,
                mode=trace.mode,
                expected=claim.found,
                got=claim.said,
                cause=claim.cause,
            )
