"""Cases that were not run for a reason that is nobody's defect: they are as expected."""

from __future__ import annotations

from collections.abc import Iterable

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


def _not_offered(verdict: Verdict, findings: Iterable[Finding]) -> bool:
    if verdict is not Verdict.UNSUPPORTED:
        return False
    refusals = [one.got for one in findings if one.verdict is Verdict.UNSUPPORTED]
    return bool(refusals) and all(got.startswith(_NOT_OFFERED) for got in refusals)
