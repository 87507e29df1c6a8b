"""Families that could not be played because this machine lacks a library of the system."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.core.missing_library import lacking, remedied
from conformance.core.verdict import CaseResult

_MOST = 5


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


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
