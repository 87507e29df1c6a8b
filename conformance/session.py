"""One process's running of cases: models, oracles and noise are made once and shared."""

from __future__ import annotations

from conformance.registry import Registry
from conformance.verdict import CaseId, CaseResult


class Session:
    """Runs cases one after another; keeps what the next case of the same family can use."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def run(self, case: CaseId) -> CaseResult:
        """Play the case and judge it. A library's failure is a verdict, never an exception."""
        raise NotImplementedError(case)
