"""Finds the inputs of a batch that matter to a new family; defects in the others go unnoticed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conformance.backend.batch_inputs import INPUTS, Seen, altered
from conformance.core.verdict import CaseId, CaseResult, Finding
from conformance.run.session import Session


class BatchInput(msgspec.Struct, frozen=True):
    """One input, and the first rung in which changing it changed an output.

    Attributes:
        rung: empty if there is none.
        given: whether any cache of this model has the input.
        read: the number of rungs in which the model read it where rows differ in it.
    """

    name: str
    rung: str = ""
    given: bool = True
    read: int = 0

    def __str__(self) -> str:
        if self.rung:
            return f"{self.name} ({self.rung})"
        if not self.given:
            return f"{self.name} (no cache of this model has it)"
        how = f"changed in {self.read} rungs" if self.read else "the model never reads it"
        return f"{self.name} ({how})"


def measure_inputs(session: Session, results: Sequence[CaseResult]) -> tuple[BatchInput, ...]:
    """Measure each input: change it in the good cases among these results and rerun them."""
    scenarios = session.registry.scenarios
    good = [r for r in results if r.verdict.good and not scenarios[r.scenario].oracle_only]
    return tuple(_measured(session, name, good) for name in INPUTS) if good else ()


def _measured(session: Session, name: str, results: Sequence[CaseResult]) -> BatchInput:
    given, read = False, 0
    for result in results:
        seen = Seen()
        noticed = _noticed(session, CaseId.parse(result.case), name, seen)
        given, read = given or seen.given > 0, read + (seen.changed > 0)
        if seen.changed and noticed:
            return BatchInput(name, result.scenario, read=read)
        if seen.calls and not given:
            break  # other rungs have the same kinds of caches
    return BatchInput(name, given=given, read=read)


def _noticed(session: Session, case: CaseId, name: str, seen: Seen) -> bool:
    """Whether a check reports a finding in the case with the input changed."""
    subject = session.subject(case)
    decoder = subject.library.decoder(subject.model)
    result = session.run(case, around=lambda _: altered(decoder, name, seen), until=_any_bad)
    return not result.verdict.good


def _any_bad(findings: Sequence[Finding]) -> bool:
    return any(not finding.verdict.good for finding in findings)
