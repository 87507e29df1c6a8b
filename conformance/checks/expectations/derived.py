"""Whether known defects explain the results in a file, whatever the file itself claims."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from conformance.checks.expectations.rules import CHECK, Expectations
from conformance.core.verdict import CaseResult, Finding

_CHECKPOINT = ("--model", "--conformance-model")


def derived(results: Iterable[CaseResult], known: Expectations) -> tuple[CaseResult, ...]:
    """The results; a wrong result without an entry that explains it becomes unexpected.

    So does a result that names an unknown id. For a checkout, only its own machine knows which
    functions are changed; for a real checkpoint, only its run knows the family whose defects it
    has.
    """
    return tuple(_derived(result, known) if _named(result) else result for result in results)


def unknown_ids(results: Iterable[CaseResult], known: Expectations) -> set[str]:
    """Ids that results name but no entry has."""
    named = {name for result in results for name in _named(result)}
    return named - {e.id for e in known.defects} - {e.id for e in known.refusals}


def _named(result: CaseResult) -> list[str]:
    """Ids that are meant to excuse a result."""
    return result.known.split(", ") if result.known and result.expected else []


def _taken(result: CaseResult) -> bool:
    """Whether a result needs no entry, or only its run can know which entry explains it."""
    checkout = any(name.endswith(" source") for name in result.versions)
    command = result.invocation.command if result.invocation else ""
    return result.verdict.good or checkout or any(name in command for name in _CHECKPOINT)


def _derived(result: CaseResult, known: Expectations) -> CaseResult:
    if unknown := unknown_ids((result,), known):
        return _unexplained(result, f"{min(unknown)}, and no entry has that id")
    if _taken(result):
        return result
    evidence = tuple(found for found in result.evidence if found.check != CHECK)
    bare = msgspec.structs.replace(result, expected=False, known=None, evidence=evidence)
    judged = known.apply(bare)
    if judged.expected:
        return result
    marked = msgspec.structs.replace(result, evidence=judged.evidence)
    return _unexplained(marked, f"{result.known}, of which no entry explains the case")


def _unexplained(result: CaseResult, names: str) -> CaseResult:
    finding = Finding(result.verdict, CHECK, f"the file names the known defect {names}")
    return msgspec.structs.replace(result, expected=False, evidence=(*result.evidence, finding))
