"""Findings about triggers that never fired, and which schedule showed which witness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.checks import Play
from conformance.core.engine import Engine, PrefixReuse
from conformance.core.schedule import Schedule, Stage
from conformance.core.verdict import Finding, Verdict, WitnessResult
from conformance.scenarios import Scenario, Witness

WITNESS = "witness"
"""The check name of findings that a schedule did not reach its purpose."""
_NOT_PLAYED = "not played: "
_FEW = 2  # an engine with fewer slots does not batch


def missed(played: Play) -> list[Finding]:
    """Triggers that never fired in the first run; in a free run a tie may prevent some."""
    return [
        Finding(
            Verdict.VACUOUS,
            WITNESS,
            f"never happened: {what}",
            schedule=played.schedule.name,
            mode=trace.mode,
        )
        for trace in played.traces[:1]
        for what in trace.missed
    ]


@dataclass(frozen=True)
class _Excuse:
    """Why no schedule could show a witness, and whether that makes the case ``unsupported``."""

    reason: str
    unsupported: bool = False


def witnessed(
    scenario: Scenario,
    schedules: Sequence[Schedule],
    plays: Sequence[Play],
    engine: type[Engine],
    model: Any,
    *,
    left_out: Sequence[str] = (),
) -> tuple[tuple[WitnessResult, ...], list[Finding]]:
    """For each witness the schedules that showed it; a finding for each missing witness.

    The finding is ``vacuous``. It is ``unsupported`` if rows of ``model`` can't share a pass and
    the witness needs that, or if the engine's declaration excludes an essential witness.

    Args:
        schedules: all schedules of the scenario, or of its tier.
        plays: the schedules that could be run.
        left_out: the scenario's other schedules, by name: witnesses that only they are made to show
            are not required; without left-out schedules, some witness must be shown.
    """
    results, findings = [], []
    for witness in scenario.witnesses:
        shown = tuple(p.schedule.name for p in plays if any(map(witness.seen, p.traces)))
        excuse = None if shown else _excuse(witness, schedules, engine, model, left_out)
        if not shown and excuse is None:
            excuse = _narrow(witness, plays, engine)
        results.append(WitnessResult(witness.name, shown, excuse.reason if excuse else ""))
        if not shown and (excuse is None or excuse.unsupported):
            findings.append(_finding(scenario, witness, excuse))
    if not (left_out or findings):
        findings = _nothing(scenario, results)
    return tuple(results), findings


def _nothing(scenario: Scenario, results: Sequence[WitnessResult]) -> list[Finding]:
    """A finding for each witness if the schedules that were run are made to show none."""
    if any(result.schedules for result in results):
        return []
    pairs = zip(scenario.witnesses, results, strict=True)
    return [_finding(scenario, w, None) for w, r in pairs if r.excused.startswith(_NOT_PLAYED)]


def _excuse(
    witness: Witness,
    schedules: Sequence[Schedule],
    engine: type[Engine],
    model: Any,
    left_out: Sequence[str],
) -> _Excuse | None:
    if lacking := witness.needs - (engine.capabilities - engine.not_offered()):
        return _Excuse(f"the engine does not declare {', '.join(sorted(lacking))}")
    made = [schedule for schedule in schedules if witness.made_for(schedule.name)]
    if not made:
        return _Excuse(f"{_NOT_PLAYED}{', '.join(witness.schedules)}")
    if others := [name for name in left_out if witness.made_for(name)]:
        return _Excuse(f"{_NOT_PLAYED}{', '.join(others)}")
    if rule := _excluding(witness, made, engine.prefix_reuse):
        reason = f"the engine declares PrefixReuse({rule})"
        return _Excuse(reason, unsupported=witness.essential)
    uncut = engine.uncut(model) if witness.cut else ""
    turns = [engine.in_turn(model, s.options) for s in made] if witness.beside else [""]
    if uncut or all(turns):
        return _Excuse(uncut or turns[0])
    apart = engine.apart(model) if witness.shared else ""
    return _Excuse(apart, unsupported=True) if apart else None


def _narrow(witness: Witness, plays: Sequence[Play], engine: type[Engine]) -> _Excuse | None:
    """That there are fewer slots than the witness needs: declared, or as others wait."""
    if _FEW <= engine.slots < witness.rows:
        return _Excuse(f"the engine declares {engine.slots} slots")
    if not engine.elsewhere:
        return None
    steps = [step for play in plays for trace in play.traces for step in trace.steps]
    slots = max((len(step.in_stage(Stage.DECODE)) for step in steps), default=0)
    waited = any(step.in_stage(Stage.QUEUED) for step in steps)
    if not waited or not _FEW <= slots < witness.rows:
        return None
    return _Excuse(f"the server answers at most {slots} requests at once, and others wait")


def _excluding(witness: Witness, made: Sequence[Schedule], rules: PrefixReuse) -> str:
    """The declared rule by which none of these schedules can show it; empty if one can."""
    reach = witness.reach
    if reach is None or any(reach(schedule, rules) for schedule in made):
        return ""
    if not any(reach(schedule, PrefixReuse()) for schedule in made):
        return ""  # no declaration is the reason
    alone = (r for r in rules.each_alone() if not any(reach(schedule, r) for schedule in made))
    return str(next(alone, rules))


def _finding(scenario: Scenario, witness: Witness, excuse: _Excuse | None) -> Finding:
    return Finding(
        Verdict.VACUOUS if excuse is None else Verdict.UNSUPPORTED,
        WITNESS,
        f"no schedule of {scenario.name} reached: {witness.name}",
        expected=witness.name,
        got="not seen" if excuse is None else excuse.reason,
        cause="the scenario proved nothing on this engine" if excuse is None else "",
    )
