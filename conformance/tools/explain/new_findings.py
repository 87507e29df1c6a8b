"""The findings that a run adds to an earlier run's: by a fault, a mutant, or the explained case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from conformance.core.verdict import MOST_FINDINGS, CaseResult, Finding, Verdict


class Sign(NamedTuple):
    """The properties by which findings of two runs are considered the same."""

    schedule: str
    check: str
    verdict: Verdict
    request_id: str | None


def new_findings(baseline: CaseResult, evidence: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of ``evidence`` that ``baseline`` lacks, without the good ones.

    A result carries only its most severe findings. A finding that the baseline may have omitted
    for this reason counts as new only if its schedule was good in the baseline, or no finding of
    its check is there: the worst of each check in each schedule is kept.
    """
    had = {_sign(finding) for finding in baseline.evidence}
    checked = {(finding.schedule, finding.check) for finding in baseline.evidence}
    whole = len(checked) < MOST_FINDINGS
    good = {schedule.name for schedule in baseline.schedules if schedule.verdict.good}
    least = _least_reported(baseline)
    return tuple(
        finding
        for finding in evidence
        if not finding.verdict.good
        and _sign(finding) not in had
        and (
            finding.verdict.severity > least
            or finding.schedule in good
            or (whole and (finding.schedule, finding.check) not in checked)
        )
    )


def _sign(finding: Finding) -> Sign:
    return Sign(finding.schedule, finding.check, finding.verdict, finding.request_id)


def _least_reported(result: CaseResult) -> int:
    """The severity at and below which the result may have omitted findings; -1 if there is none.

    The worst finding of each schedule is always kept, so it is ignored here.
    """
    firsts = {finding.schedule: finding for finding in reversed(result.evidence)}
    missing = [s for s in result.schedules if not s.verdict.good and s.name not in firsts]
    if not missing and len(result.evidence) < MOST_FINDINGS:
        return -1
    others = [f for f in result.evidence if f is not firsts[f.schedule]]
    most = max((f.verdict.severity for f in result.evidence), default=-1)
    return min((f.verdict.severity for f in others), default=most)
