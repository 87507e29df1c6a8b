"""Invalid calls must be refused with a clear error and change nothing."""

from __future__ import annotations

from conformance.checks.play import Play
from conformance.core.verdict import Finding, Verdict

# Exceptions that a caller can distinguish from a bug inside the engine.
_CLEAR = ("ValueError", "TypeError", "KeyError", "refused")
# Prefix of a server's 4xx answer with a message in the record.


def check_probes(play: Play) -> list[Finding]:
    """``protocol`` for each invalid call that was accepted, unclearly refused, or had an effect."""
    findings = []
    for trace in play.traces[:2]:
        for step in trace.steps:
            for probe in step.probes:
                error_type = (probe.error or "").partition(":")[0]
                if probe.error is None:
                    findings.append(_finding(play, trace.mode, probe.kind, "was accepted"))
                elif error_type not in _CLEAR:
                    problem = f"was refused with {probe.error}, which names no argument"
                    findings.append(_finding(play, trace.mode, probe.kind, problem))
                findings += [
                    _finding(play, trace.mode, probe.kind, f"changed the {what}")
                    for what in probe.changed
                ]
    return findings


def _finding(play: Play, mode: str, kind: str, problem: str) -> Finding:
    return Finding(
        Verdict.PROTOCOL,
        "probe",
        f"the invalid call {kind!r} {problem}",
        schedule=play.schedule.name,
        mode=mode,
        expected="a ValueError, TypeError or KeyError, of a server a 4xx with a message, and "
        "nothing changed",
        got=problem,
        cause="arguments are not validated before they are used",
    )
