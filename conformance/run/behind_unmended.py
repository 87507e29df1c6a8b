"""What hides behind a known defect without a mend: its requests, each alone on a model loaded anew.

The defect needs several requests, or a state that an earlier one left. A request that has neither
must be right, with the options of the schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from conformance.checks.expectations.rules import APART
from conformance.core.engine import Capability
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import CaseId, Finding, Verdict
from conformance.run.judging.judge import brief_for
from conformance.run.session import Session
from conformance.scenarios import Brief


def behind_unmended(session: Session, case: CaseId, hidden: Collection[str]) -> tuple[Finding, ...]:
    """What is wrong with the requests of these schedules, each alone on a model loaded anew.

    A request that continues another one cannot be alone, nor can one of a server, or of a schedule
    that weighs or counts: the number is that of the schedule.
    """
    registry = session.registry
    scenario, engine = registry.scenarios[case.scenario], registry.engines[case.engine]
    if scenario.oracle_only or Capability.SERVED in engine.capabilities:
        return ()
    made = scenario.make(brief_for(session.subject(case), engine, case.seed))
    alone = dict.fromkeys(
        s for schedule in made if schedule.name in hidden for s in _alone(schedule)
    )
    found: list[Finding] = []
    for schedule in alone:
        single = dataclasses.replace(scenario, make=_only(schedule), witnesses=())
        scenarios = {**registry.scenarios, scenario.name: single}
        anew = Session(dataclasses.replace(registry, scenarios=scenarios))
        found += (f for f in anew.run(case).evidence if not f.verdict.good)
    wrong = (f for f in found if f.verdict not in (Verdict.UNSUPPORTED, Verdict.VACUOUS))
    return tuple(msgspec.structs.replace(finding, mended=APART) for finding in wrong)


def _only(schedule: Schedule) -> Callable[[Brief], Sequence[Schedule]]:
    return lambda _: [schedule]


def _alone(schedule: Schedule) -> Iterator[Schedule]:
    """A schedule for each request: it arrives at once, and nothing else happens."""
    if schedule.weigh is not None or schedule.contracts:
        return
    for request in schedule.requests:
        if request.continues is None:
            yield Schedule("alone", (Arrival((_unnamed(request),)),), options=schedule.options)


def _unnamed(request: Request) -> Request:
    """Equal requests of several schedules are run once."""
    return msgspec.structs.replace(request, request_id="alone")
