"""Which findings of a case the entries allow: these are known, all others are new."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conformance.checks.expectations.entries import Defect, Refusal
from conformance.core.verdict import CaseResult, Finding, Verdict


def marked(
    result: CaseResult, defects: Sequence[Defect], refusals: Sequence[Refusal]
) -> tuple[Finding, ...]:
    """The evidence; each finding that an entry allows has its id in ``known``.

    Args:
        defects: the entries that apply to the case.
        refusals: entries about the family; which of them concern the case is looked up here.
    """
    refusing = [refusal for refusal in refusals if refusal.concerns(result)]

    def known(finding: Finding) -> str:
        if finding.verdict.good or finding.mended:
            return ""
        ids = [entry.id for entry in defects if _allows(entry, result, finding)]
        if finding.verdict is Verdict.UNSUPPORTED:
            ids += [refusal.id for refusal in refusing if refusal.words(finding)]
        return ", ".join(ids)

    return tuple(_with(finding, known(finding)) for finding in result.evidence)


def _allows(entry: Defect, result: CaseResult, finding: Finding) -> bool:
    """A finding outside of all schedules concerns the case, whose verdict the entry may explain."""
    claimed = not finding.schedule or entry.claims(result.scenario, finding.schedule)
    return claimed and finding.verdict in entry.accepted(result)


def _with(finding: Finding, known: str) -> Finding:
    return finding if finding.known == known else msgspec.structs.replace(finding, known=known)
