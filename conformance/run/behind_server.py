"""Server or engine? Requests that fail on one of them are given to the other.

A failing server's requests go to its library's own engine, and a failing engine's to the library's
server, if the run has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from conformance.core.engine import Capability, Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import CaseResult, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import judge_batched
from conformance.scenarios.scenario import Scenario

# Schedules to give to the engine, the first that failed.
_MOST = 2
_NO_ANSWER = (Verdict.UNSUPPORTED, Verdict.VACUOUS)


def behind_server(
    subject: Subject, engine: type[Engine], schedules: Sequence[Schedule], result: CaseResult
) -> str:
    """Whether a failing server or its library's own engine is at fault, in one sentence.

    Returns: an empty text if the engine can play none of the schedules that failed.
    """
    other = _other(subject, engine, schedules, result)
    if other is None:
        return ""
    verdict, names = other
    if verdict.good:
        return f"server: its engine is right with the requests of {names} ({engine.name})"
    return f"engine: {engine.name} without a server is {verdict} with the requests of {names}, too"


def before_engine(
    subject: Subject, server: type[Engine], schedules: Sequence[Schedule], result: CaseResult
) -> str:
    """Whether the library's server has the fault of its failing engine, too, in one sentence.

    Returns: an empty text if the server can play none of the schedules that failed.
    """
    other = _other(subject, server, schedules, result)
    if other is None:
        return ""
    verdict, names = other
    if verdict.good:
        return f"its server is right with the requests of {names} ({server.name})"
    if verdict is Verdict.CRASH is not result.verdict:
        return f"its server crashes with the requests of {names} ({server.name})"
    return f"its server is {verdict} with the requests of {names}, too ({server.name})"


def _other(
    subject: Subject, engine: type[Engine], schedules: Sequence[Schedule], result: CaseResult
) -> tuple[Verdict, str] | None:
    """The verdict on another engine with what failed, and the schedules' names."""
    wrong = {finding.schedule for finding in result.evidence if not finding.verdict.good}
    failed = [_plain(engine, one) for one in schedules if one.name in wrong]
    played = [one for one in failed if one is not None][:_MOST]
    if not played:
        return None
    scenario = Scenario("behind_server", 0, "", frozenset(), lambda _: played)
    found = judge_batched(subject, engine, scenario, played).verdict
    if found in _NO_ANSWER:
        return None
    return found, ", ".join(repr(one.name) for one in played)


def _plain(engine: type[Engine], schedule: Schedule) -> Schedule | None:
    """The requests of a schedule as an engine gets them; ``None`` if none is left.

    Requests whose answers need a server are left out: adapters, other models, schemas, seeds.
    """
    arrivals = [
        Arrival(requests, arrival.when)
        for arrival in schedule.arrivals
        if (requests := tuple(_requests(engine, arrival.requests)))
    ]
    kept = {request.request_id for arrival in arrivals for request in arrival.requests}
    whens = {arrival.when.request_id for arrival in arrivals} - {None}
    removals = tuple(one for one in schedule.removals if set(one.request_ids) <= kept)
    if not kept or not whens <= kept:
        return None
    given = schedule.options
    busy = Capability.SERVED in engine.capabilities  # it has a row of its own, so that others meet
    options = EngineOptions(
        prefill_step_size=given.prefill_step_size,
        prefill_batch_size=given.prefill_batch_size,
        completion_batch_size=max(given.completion_batch_size, given.prefill_batch_size) + busy,
        busy=busy,
    )
    return Schedule(schedule.name, tuple(arrivals), removals, options=options)


def _requests(engine: type[Engine], requests: Sequence[Request]) -> Iterator[Request]:
    for request in requests:
        asked = request.asked
        special = asked is not None and (asked.other or asked.adapter or asked.schema)
        own = request.sampler is not None or request.processors or request.continues is not None
        if not special and not own:
            stop = request.stop if Capability.STOP in engine.capabilities else ()
            yield msgspec.structs.replace(request, asked=None, stop=stop)
