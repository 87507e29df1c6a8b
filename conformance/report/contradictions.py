"""Contradictions within a line of a result file, which no run would write."""

from __future__ import annotations

from conformance.core.missing_library import lacking
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.message import RULE


def contradiction(result: CaseResult) -> str:
    """The first contradiction, as the rest of a sentence; empty if there is none."""
    if denied := _verdict_denied(result):
        return denied
    played = {schedule.name for schedule in result.schedules}
    excused = result.known or lacking(result.verdict, result.evidence)
    if result.expected and not (result.verdict.good or excused):
        return f"'expected' is true, but {result.verdict} is the verdict and no defect is known"
    if both := played.intersection(result.left_out):
        return f"the schedule {min(both)!r} was played and left out"
    for witness in result.witnesses:
        if unplayed := set(witness.schedules) - played:
            return f"{min(unplayed)!r} shows {witness.name!r}, but was not played"
    return ""


def _verdict_denied(result: CaseResult) -> str:
    """Schedules and findings that contradict the verdict."""
    worst = max((s.verdict for s in result.schedules), key=_severity, default=Verdict.EXACT)
    found = [f for f in result.evidence if not f.mended and f.check != RULE]
    against = max((f.verdict for f in found), key=_severity, default=Verdict.EXACT)
    if result.verdict.good and not (worst.good and against.good):
        of = "schedule" if not worst.good else "finding"
        worse = worst if not worst.good else against
        return f"the verdict is {result.verdict}, but that of a {of} is {worse}"
    if worst.severity > result.verdict.severity:
        return f"the verdict is {result.verdict}, but that of a schedule is {worst}"
    return ""


def _severity(verdict: Verdict) -> int:
    return verdict.severity
