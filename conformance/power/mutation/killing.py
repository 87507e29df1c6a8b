"""Whether the checks distinguish a run with a fault from a run without: by new findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from conformance.core.faults.declaration import Fault
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.tools.explain.new_findings import new_findings

# These findings are no evidence, because a good batch can have them.
_ASIDE = {Verdict.POLICY, Verdict.UNSUPPORTED, Verdict.VACUOUS}
# Any broken code ends in these, so they count only for a fault that was itself a crash.
_BLUNT = {Verdict.CRASH, Verdict.HANG}
# These are about the knowledge of a result, not about the library.
_NO_CHECKS = {"expectations", "witness"}


def detected(fault: Fault, baseline: CaseResult, evidence: Iterable[Finding]) -> bool:
    """Whether some check reports a finding with the fault that it does not report without it.

    A crash or a hang counts only if the defect was itself a crash. A finding that nothing was
    proved, or that nothing is supported, never counts.
    """
    return any(
        _accuses(fault, finding.verdict) and finding.check not in _NO_CHECKS
        for finding in new_findings(baseline, evidence)
    )


def killed(fault: Fault, baseline: CaseResult, mutated: CaseResult) -> bool:
    """Whether the fault is ``detected`` in the result, compared with the result without it.

    The evidence of a schedule may have been omitted in favour of worse ones, so a schedule that was
    good and no longer is also counts.
    """
    if detected(fault, baseline, mutated.evidence):
        return True
    return any(_accuses(fault, verdict) for verdict in _turned(baseline, mutated))


def killing_schedules(fault: Fault, baseline: CaseResult, mutated: CaseResult) -> tuple[str, ...]:
    """The schedules that would each alone have ``killed`` the fault, in their order.

    A finding that names no schedule, such as a leaked thread, counts for none.
    """
    accusing = {
        finding.schedule
        for finding in new_findings(baseline, mutated.evidence)
        if _accuses(fault, finding.verdict) and finding.check not in _NO_CHECKS
    }
    verdicts = {schedule.name: schedule.verdict for schedule in baseline.schedules}
    for schedule in mutated.schedules:
        turned = verdicts.get(schedule.name, Verdict.CRASH).good and not schedule.verdict.good
        if turned and _accuses(fault, schedule.verdict):
            accusing.add(schedule.name)
    return tuple(s.name for s in mutated.schedules if s.name in accusing)


def overcome(baselines: Iterable[CaseResult], mutated: CaseResult) -> set[str]:
    """The schedules that ended in a crash or refusal that the family also has without the fault.

    There the fault only led to an existing error, which hides any other effect.
    """
    known = {_message(finding) for baseline in baselines for finding in _ends(baseline)}
    return {finding.schedule for finding in _ends(mutated) if _message(finding) in known}


def _ends(result: CaseResult) -> Iterator[Finding]:
    ends = (Verdict.CRASH, Verdict.UNSUPPORTED)
    return (finding for finding in result.evidence if finding.verdict in ends)


def _message(finding: Finding) -> str:
    """The message of an error without numbers, as shapes differ with the size of the batch."""
    return re.sub(r"\d+", "#", finding.got)


def _accuses(fault: Fault, verdict: Verdict) -> bool:
    return verdict not in (_ASIDE if fault.crash else _ASIDE | _BLUNT)


def _turned(baseline: CaseResult, mutated: CaseResult) -> Iterator[Verdict]:
    """The verdicts of schedules that were good and no longer are."""
    good = {schedule.name for schedule in baseline.schedules if schedule.verdict.good}
    for schedule in mutated.schedules:
        if schedule.name in good and not schedule.verdict.good:
            yield schedule.verdict
