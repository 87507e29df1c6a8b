"""Whether known defects explain the results of a file; that the file says so is not enough."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from conformance.checks.expectations.rules import CHECK, Expectations
from conformance.core.verdict import CaseResult, Finding

_CHECKPOINT = ("--model", "--conformance-model")


def derived(results: Iterable[CaseResult], known: Expectations) -> tuple[CaseResult, ...]:
    """The results, of which one is not expected if it is wrong and no entry explains it.

    Of a checkout only its own machine knows which of its functions are changed, and of a real
    checkpoint only its run knows the family whose defects it has.
    """
    return tuple(_derived(result, known) if _claims(result) else result for result in results)


def unknown_ids(results: Iterable[CaseResult], known: Expectations) -> set[str]:
    """The ids that results name and no entry has."""
    named = {name for r in results if _claims(r) for name in (r.known or "").split(", ")}
    return named - {e.id for e in known.defects} - {e.id for e in known.refusals}


def _claims(result: CaseResult) -> bool:
    checkout = any(name.endswith(" source") for name in result.versions)
    command = result.invocation.command if result.invocation else ""
    elsewhere = checkout or any(name in command for name in _CHECKPOINT)
    return result.expected and bool(result.known) and not (result.verdict.good or elsewhere)


def _derived(result: CaseResult, known: Expectations) -> CaseResult:
    evidence = tuple(found for found in result.evidence if found.check != CHECK)
    bare = msgspec.structs.replace(result, expected=False, known=None, evidence=evidence)
    judged = known.apply(bare)
    if judged.expected:
        return result
    why = f"the file names the known defect {result.known}, of which no entry explains the case"
    finding = Finding(result.verdict, CHECK, why)
    return msgspec.structs.replace(result, expected=False, evidence=(*judged.evidence, finding))
