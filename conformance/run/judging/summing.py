"""Makes the result of a case from its findings, schedules and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from conformance.core.excused import excused
from conformance.core.verdict import MOST_FINDINGS, CaseId, CaseResult, Finding
from conformance.run.judging.judge import Outcome


def result_of(
    case: CaseId,
    outcome: Outcome,
    *,
    adds: str,
    versions: Mapping[str, str],
    device: str,
    seconds: float = 0.0,
    forward_seconds: float = 0.0,
) -> CaseResult:
    """The result of a case, worst findings first; ``expected`` does not yet consider known defects.

    A missing system library of this machine is not a failure.

    Args:
        adds: the ingredient that the scenario adds: the cause of findings without a cause.
    """
    findings = sorted(outcome.findings, key=lambda f: -f.verdict.severity)
    at = [f.step for f in findings if f.step is not None and not f.verdict.good]
    numbers, verdict = outcome.numbers, outcome.verdict
    return CaseResult(
        case=str(case),
        engine=case.engine,
        family=case.family,
        scenario=case.scenario,
        dtype=case.dtype,
        seed=case.seed,
        verdict=verdict,
        expected=verdict.good or excused(verdict, findings),
        max_abs_diff=numbers.difference if numbers else None,
        noise=numbers.noise if numbers else None,
        ratio=numbers.ratio if numbers else None,
        first_bad_step=min(at, default=None),
        evidence=tuple(_caused(f, adds) for f in _kept(findings)),
        versions=dict(versions),
        device=device,
        seconds=round(seconds, 4),
        forward_seconds=round(forward_seconds, 4),
        schedules=outcome.schedules,
        witnesses=outcome.witnesses,
        picture=outcome.picture,
        left_out=outcome.left_out,
        exercised=tuple(sorted(map(str, outcome.exercised))),
    )


def _kept(findings: Sequence[Finding]) -> list[Finding]:
    """As many findings as a result holds: the worst of each schedule and check, then of the rest.

    The many findings of a known defect must not displace the only finding of another schedule, nor
    the only one of another check.
    """
    first: dict[str, int] = {}
    by_check: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        first.setdefault(finding.schedule, index)
        by_check.setdefault((finding.schedule, finding.check), index)
    order = dict.fromkeys([*first.values(), *by_check.values(), *range(len(findings))])
    chosen = sorted(list(order)[:MOST_FINDINGS])
    return [findings[index] for index in chosen]


def _caused(finding: Finding, adds: str) -> Finding:
    if finding.cause or finding.verdict.good:
        return finding
    return msgspec.structs.replace(finding, cause=f"what this rung adds: {adds}")
