"""A failing schedule and variations of it, each run until a check accuses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.report.explanation import Ingredient, Needed
from conformance.run.judging.judge import judge_batched
from conformance.scenarios import Scenario
from conformance.tools.explain.ingredients import Switch, switches, without

# Verdicts that do not mean a defect.
_ASIDE = {Verdict.POLICY, Verdict.UNSUPPORTED, Verdict.VACUOUS}


def accuses(finding: Finding) -> bool:
    """Whether a finding reports a defect."""
    return fails(finding.verdict)


@dataclass(frozen=True)
class Failing:
    """A failing schedule with everything needed to run it again."""

    case: CaseId
    subject: Subject
    engine: type[Engine]
    scenario: Scenario
    schedule: Schedule
    finding: Finding

    def verdict(self, schedule: Schedule, engine: type[Engine] | None = None) -> Verdict:
        """The verdict on another schedule, or on this one with another engine; without witnesses.

        The run stops at the first accusing finding. ``UNSUPPORTED`` is also the verdict if the
        changed schedule cannot be run.
        """
        bare = dataclasses.replace(self.scenario, witnesses=())
        chosen = engine or self.engine
        try:
            outcome = judge_batched(
                self.subject,
                chosen,
                bare,
                [schedule],
                until=lambda found: any(accuses(finding) for finding in found),
            )
        except ConformanceError:
            return Verdict.UNSUPPORTED
        return outcome.verdict


def ingredients(failing: Failing) -> tuple[tuple[Ingredient, ...], bool | None]:
    """Each ingredient of the schedule, switched off, and whether the needed ones suffice."""
    known = switches(
        failing.schedule,
        failing=failing.finding.request_id,
        window=failing.subject.family.facts.window,
    )
    found = [_tried(failing, switch) for switch in known]
    useless = [s for s, i in zip(known, found, strict=True) if i.needed is Needed.NO]
    if not useless:
        return tuple(found), None
    bare = without(failing.schedule, useless)
    return tuple(found), fails(failing.verdict(bare))


def fails(verdict: Verdict) -> bool:
    """Whether a verdict means a defect."""
    return not verdict.good and verdict not in _ASIDE


def _tried(failing: Failing, switch: Switch) -> Ingredient:
    verdict = failing.verdict(switch.off(failing.schedule))
    return Ingredient(switch.name, _needed(verdict), switch.how, verdict.value)


def by_dtype(failing: Failing, verdict: Verdict) -> Ingredient:
    """The dtype as an ingredient, given the verdict in float32."""
    return Ingredient(failing.case.dtype, _needed(verdict), "in float32", verdict.value)


def _needed(without_it: Verdict) -> Needed:
    if fails(without_it):
        return Needed.NO
    return Needed.YES if without_it.good else Needed.UNKNOWN


def first_failing(
    schedules: Sequence[Schedule], findings: Sequence[Finding], wrong: Collection[str] = ()
) -> tuple[Schedule, Finding] | None:
    """The schedule of the worst finding, with the most precise finding.

    Schedules in ``wrong``, which also fail for another reason, come last.
    """
    accusing = [finding for finding in findings if accuses(finding)]
    by_name = {schedule.name: schedule for schedule in schedules}
    for finding in sorted(
        accusing, key=lambda f: (f.schedule in wrong, -f.verdict.severity, f.step is None)
    ):
        if finding.schedule in by_name:
            return by_name[finding.schedule], finding
    return None


def in_float32(case: CaseId) -> CaseId:
    """The same case in float32, the dtype with the least rounding."""
    return msgspec.structs.replace(case, dtype="float32")
