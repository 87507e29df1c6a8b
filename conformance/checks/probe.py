"""Invalid calls: refused with a clear error, and nothing changed."""

from __future__ import annotations

from conformance.checks.base import Play
from conformance.core.verdict import Finding, Verdict

# What a caller can tell from a bug inside the engine.
_CLEAR = ("ValueError", "TypeError", "KeyError")


def check_probes(play: Play) -> list[Finding]:
    """``protocol`` for each invalid call that was accepted, unclearly refused, or left a mark."""
    findings = []
    for trace in play.traces[:2]:
        for step in trace.steps:
            for probe in step.probes:
                error_type = (probe.error or "").partition(":")[0]
                if probe.error is None:
                    findings.append(_finding(play, trace.mode, probe.kind, "was accepted"))
                elif error_type not in _CLEAR:
                    words = f"was refused with {probe.error}, which names no argument"
                    findings.append(_finding(play, trace.mode, probe.kind, words))
                findings += [
                    _finding(play, trace.mode, probe.kind, f"changed the {what}")
                    for what in probe.changed
                ]
    return findings


def _finding(play: Play, mode: str, kind: str, words: str) -> Finding:
    return Finding(
        Verdict.PROTOCOL,
        "probe",
        f"the invalid call {kind!r} {words}",
        schedule=play.schedule.name,
        mode=mode,
        expected="a ValueError, TypeError or KeyError, and nothing changed",
        got=words,
        cause="arguments are not validated before they are used",
    )
