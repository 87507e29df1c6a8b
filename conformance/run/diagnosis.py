"""Model or engine? A failing case is rerun on engines that are correct by construction.

Such an engine (``Engine.opinion``) keeps each row in its own caches. If the same model is right
there, the library's engine or its caches are wrong; if not, the model is, unless equal rows in one
pass are wrong, too: then the number of rows decides. If the pass without a cache agrees with the
engine, the single stream is wrong. A server's requests are given to its library's own engine, and
that engine's to the library's first server that can play them, unless the model is to blame: each
start of a server takes seconds, and it would serve the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from conformance.core.engine import Capability, Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import judge_batched
from conformance.run.odd_one_out import by_number_of_rows, odd_one_out
from conformance.run.session import Session
from conformance.scenarios.scenario import Scenario

CHECK = "diagnosis"
"""The check name of this finding in the evidence of a case; it never changes the verdict."""

MODEL = "model:"
"""How a conclusion begins that blames the model."""

# An engine without padding cannot show padding, so its case is vacuous, but its result is right.
_RIGHT = {Verdict.EXACT, Verdict.TIE, Verdict.VACUOUS}


def diagnose(
    session: Session, case: CaseId, result: CaseResult, *, servers: bool = True
) -> CaseResult:
    """``result`` with one more finding: model, engine or cache, the single stream, or undecided.

    Without a model there is nothing to compare, and ``result`` is returned.

    Args:
        servers: whether a server may be started to compare it with its library's own engine.
    """
    try:
        session.subject(case)
    except ModelError:
        return result
    same = {name: msgspec.structs.replace(case, engine=name) for name in opinions(session, case)}
    others = {name: session.run(one) for name, one in same.items()}
    verdicts = {name: other.verdict for name, other in others.items()}
    text = conclusion(verdicts)
    registry = session.registry
    library = registry.engines[case.engine].library
    own = registry.engines.get(library)
    if registry.scenarios[case.scenario].served and own is not None and not _serves(own):
        schedules = _schedules(session, case)
        text = behind_server(session.subject(case), own, schedules, result) or text
    of_model = False
    if others:
        subject, schedules = session.subject(case), _schedules(session, case)
        text = odd_one_out(subject, schedules, result, others) or text
        of_model = text.startswith(MODEL)
        if of_model:
            text = by_number_of_rows(subject, schedules, result.evidence) or text
    other = _serves(registry.engines[case.engine]) or registry.scenarios[case.scenario].oracle_only
    if servers and case.engine == library and not (other or of_model):
        said = next(_servers(session, case, result), "")
        text = f"{_going_on(text) or 'engine:'} {said}" if said else text
    finding = Finding(Verdict.EXACT, CHECK, text)
    return msgspec.structs.replace(result, evidence=(*result.evidence, finding))


def _servers(session: Session, case: CaseId, result: CaseResult) -> Iterator[str]:
    """What each of the library's servers does with what its own engine fails at."""
    for server in session.registry.engines.values():
        if server.library == case.engine and _serves(server):
            subject, schedules = session.subject(case), _schedules(session, case)
            if said := before_engine(subject, server, schedules, result):
                yield said


def _going_on(text: str) -> str:
    """The beginning of a sentence that goes on; empty if the text decides nothing."""
    return "" if text.startswith("undecided") else f"{text};"


def _serves(engine: type[Engine]) -> bool:
    return Capability.SERVED in engine.capabilities


def opinions(session: Session, case: CaseId) -> tuple[str, ...]:
    """The engines that can give a second opinion on the case."""
    registry = session.registry
    library = registry.engines[case.engine].library
    scenario = registry.scenarios[case.scenario]
    other_model = registry.family_of(case).name != case.family  # which they would not run
    if scenario.oracle_only or other_model or registry.engines[case.engine].opinion:
        return ()
    return tuple(
        name
        for name, engine in registry.engines.items()
        if engine.opinion
        and engine.library == library
        and not scenario.lacking(engine.capabilities)
    )


def conclusion(verdicts: dict[str, Verdict]) -> str:
    """The conclusion from the verdicts of the reference engines, in one sentence."""
    known = {name: verdict for name, verdict in verdicts.items() if verdict != Verdict.UNSUPPORTED}
    if not known:
        return "undecided: no reference engine can play this"
    good = [verdict in _RIGHT for verdict in known.values()]
    listed = ", ".join(
        f"{'right' if right else verdict} on {name}"
        for right, (name, verdict) in zip(good, known.items(), strict=True)
    )
    if all(good):
        return f"engine or cache: the same model is {listed}"
    if not any(good):
        return f"{MODEL} it is {listed}, which keep each row's cache apart"
    return f"{MODEL} where rows are arranged otherwise it is right ({listed})"


def _schedules(session: Session, case: CaseId) -> Sequence[Schedule]:
    try:
        return session.schedules(case)
    except Exception:  # noqa: BLE001  (as the case itself said: not supported, or the model fails)
        return ()


# Server or engine? Requests that fail on one of them are given to the other -----------------------

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
