"""Findings about triggers that never fired and witnesses that no trace of a case has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.checks import Play
from conformance.core.engine import Engine
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict
from conformance.scenarios import Scenario, Witness


def missed(played: Play) -> list[Finding]:
    """Triggers that never fired in the first run; in a free run a tie may prevent some."""
    return [
        Finding(
            Verdict.VACUOUS,
            "witness",
            f"never happened: {what}",
            schedule=played.schedule.name,
            mode=trace.mode,
        )
        for trace in played.traces[:1]
        for what in trace.missed
    ]


def unwitnessed(
    scenario: Scenario, traces: Sequence[Trace], engine: type[Engine], model: Any
) -> list[Finding]:
    """A finding for each witness of the scenario that no trace has.

    ``vacuous``; or ``unsupported`` if the witness needs rows in one pass, and the engine gives a
    reason why rows of ``model`` can't share one.
    """
    missing = [
        witness
        for witness in scenario.witnesses
        if witness.needs <= engine.capabilities
        if not any(witness.seen(trace) for trace in traces)
    ]
    apart = engine.apart(model) if any(witness.shared for witness in missing) else ""
    return [_finding(scenario, witness, apart if witness.shared else "") for witness in missing]


def _finding(scenario: Scenario, witness: Witness, apart: str) -> Finding:
    return Finding(
        Verdict.UNSUPPORTED if apart else Verdict.VACUOUS,
        "witness",
        f"no schedule of {scenario.name} reached: {witness.name}",
        expected=witness.name,
        got=apart or "not seen",
        cause="" if apart else "the scenario proved nothing on this engine",
    )
