"""Whether the checks distinguish a run with a fault from one without: by what they newly find."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from conformance.core.faults.declaration import Fault
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.tools.explain.new_findings import new_findings

# They accuse nothing: a batch that is good can have them.
_ASIDE = {Verdict.POLICY, Verdict.UNSUPPORTED, Verdict.VACUOUS}
# Any broken code ends in these: only a fault that was itself a crash is known by them.
_BLUNT = {Verdict.CRASH, Verdict.HANG}
# About what is known of a result, not about the library.
_NO_CHECKS = {"expectations", "witness"}


def detected(fault: Fault, baseline: CaseResult, evidence: Iterable[Finding]) -> bool:
    """Whether some check reports of the run with the fault what it did not report without it.

    A crash or a hang counts only where the defect was itself a crash; a finding that nothing was
    proved, or that nothing is supported, never does.
    """
    return any(
        _accuses(fault, finding.verdict) and finding.check not in _NO_CHECKS
        for finding in new_findings(baseline, evidence)
    )


def killed(fault: Fault, baseline: CaseResult, mutated: CaseResult) -> bool:
    """Whether the fault is ``detected`` in the result, against the one without it.

    The evidence of a schedule may have been left out in favour of worse ones: that it was good and
    is not any more will do.
    """
    if detected(fault, baseline, mutated.evidence):
        return True
    return any(_accuses(fault, verdict) for verdict in _turned(baseline, mutated))


def killing_schedules(fault: Fault, baseline: CaseResult, mutated: CaseResult) -> tuple[str, ...]:
    """The schedules by each of which alone the fault would have been ``killed``, in their order.

    A finding that names no schedule, such as one of a leaked thread, is counted for none.
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
    """The schedules that ended in a crash or a refusal which the family has without the fault.

    There a fault only led into what was there before, and nothing more can be seen of it.
    """
    known = {_message(finding) for baseline in baselines for finding in _ends(baseline)}
    return {finding.schedule for finding in _ends(mutated) if _message(finding) in known}


def _ends(result: CaseResult) -> Iterator[Finding]:
    ends = (Verdict.CRASH, Verdict.UNSUPPORTED)
    return (finding for finding in result.evidence if finding.verdict in ends)


def _message(finding: Finding) -> str:
    """What was raised, but for its numbers: batches of other sizes have other shapes."""
    return re.sub(r"\d+", "#", finding.got)


def _accuses(fault: Fault, verdict: Verdict) -> bool:
    return verdict not in (_ASIDE if fault.crash else _ASIDE | _BLUNT)


def _turned(baseline: CaseResult, mutated: CaseResult) -> Iterator[Verdict]:
    """Verdicts of the schedules that were good and are not any more."""
    good = {schedule.name for schedule in baseline.schedules if schedule.verdict.good}
    for schedule in mutated.schedules:
        if schedule.name in good and not schedule.verdict.good:
            yield schedule.verdict
