"""Problems of this machine: missing system libraries, and cases that its device refused once."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.core.missing_library import lacking, remedied
from conformance.core.verdict import CaseResult

_MOST = 5

MACHINE = "machine"
"""The check name of the finding that a device refused a case at first."""


def about_machine(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """A sentence about each of the two problems."""
    found = tuple(results)
    return (*not_playable(found), *problems_of_machine(found))


def not_playable(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """A sentence for each missing file: the families that need it, and what to install."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        if file := lacking(result.verdict, result.evidence):
            found.setdefault(file, {})[f"{result.engine}/{result.family}"] = None
    return tuple(
        f"not playable here: {_listed(list(families))}: {remedied(file)}"
        for file, families in found.items()
    )


def problems_of_machine(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """A sentence about cases that a device or its compiler refused, but not when run alone."""
    found = {
        result.case: finding
        for result in results
        for finding in result.evidence
        if finding.check == MACHINE
    }
    if not found:
        return ()
    names, first = list(found), next(iter(found.values()))
    what = f"{first.what}; what it gave alone counts"
    return (f"a problem of this machine: {_listed(names)}: {what}",)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
