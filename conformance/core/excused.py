"""Cases that were not run for a reason that is nobody's defect: they are as expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.core.errors import NotOffered
from conformance.core.missing_library import lacking
from conformance.core.verdict import Finding, Verdict

_NOT_OFFERED = f"{NotOffered.__name__}: "


def excused(verdict: Verdict, findings: Iterable[Finding]) -> bool:
    """Whether this machine lacks a system library, or a server at a URL does not offer the feature.

    Nothing else that a case shows may be wrong.
    """
    kept = tuple(findings)
    return bool(lacking(verdict, kept)) or _not_offered(verdict, kept)


def offered(findings: Sequence[Finding], names: Iterable[str]) -> Sequence[Finding]:
    """The findings without those of schedules that a server at a URL does not offer.

    All of them if it offers none, as then nothing was run.

    Args:
        names: of the case's schedules.
    """
    refused = set(not_offered(findings))
    left = [one for one in findings if one.schedule not in refused]
    return left if refused and set(names) - refused else findings


def not_offered(findings: Iterable[Finding]) -> dict[str, str]:
    """What a server at a URL does not offer, by schedule."""
    return {
        one.schedule: one.got.removeprefix(_NOT_OFFERED)
        for one in findings
        if one.schedule and one.verdict is Verdict.UNSUPPORTED and one.got.startswith(_NOT_OFFERED)
    }


def _not_offered(verdict: Verdict, findings: Iterable[Finding]) -> bool:
    if verdict is not Verdict.UNSUPPORTED:
        return False
    refusals = [one.got for one in findings if one.verdict is Verdict.UNSUPPORTED]
    return bool(refusals) and all(got.startswith(_NOT_OFFERED) for got in refusals)
