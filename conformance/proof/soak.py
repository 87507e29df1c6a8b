"""Random schedules over families without known defects: whatever is flagged is a false alarm.

Each schedule uses a random subset of features (swarm testing, Groce et al., ISSTA 2012), so that
no feature hides another. Prompts are the shared ones of the ladder, so that a stream of the oracle
serves many schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from conformance.engine import Capability
from conformance.expectations import Expectations
from conformance.judging.judge import brief_for, judge_batched
from conformance.registry import Registry
from conformance.runner import failure_of
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.build import PIECE, ask, in_prefill, produced, queued
from conformance.schedule import (
    Arrival,
    EngineOptions,
    Processor,
    Removal,
    Request,
    Sampler,
    Schedule,
    Trigger,
)
from conformance.session import Session
from conformance.verdict import CaseId, Verdict

_LENGTHS = (1, 2, 3, 5, 7, 8, 11, 13, 17, 23)
_VARIANTS = 3
_MOST_REQUESTS = 6
_LATEST_STEP = 8
# Only entries about calls that no schedule here makes leave a family clean.
_APART = frozenset({"invalid"})


class Feature:
    """The ingredients of which each schedule has a random subset."""

    ARRIVALS, REMOVALS, PIECES, SLOTS = "arrivals", "removals", "pieces", "slots"
    SAMPLERS, PROCESSORS, STOP = "samplers", "processors", "stop"


NEEDS = {
    Feature.ARRIVALS: Capability.LATE_JOIN,
    Feature.REMOVALS: Capability.CANCEL,
    Feature.PIECES: Capability.CHUNKED,
    Feature.SLOTS: Capability.SLOTS,
    Feature.SAMPLERS: Capability.SAMPLERS,
    Feature.PROCESSORS: Capability.PROCESSORS,
    Feature.STOP: Capability.STOP,
}


class SoakUnit(msgspec.Struct, frozen=True):
    """``rows`` requests at least, in schedules that ``first`` and ``seed`` decide."""

    engine: str
    family: str
    dtype: str
    seed: int
    rows: int
    first: int = 0


class Alarm(msgspec.Struct, frozen=True):
    """A schedule that was not exact, with all that is needed to play it again."""

    engine: str
    family: str
    dtype: str
    seed: int
    verdict: str
    what: str
    schedule: Schedule


class Soaked(msgspec.Struct, frozen=True):
    """What became of a unit.

    Attributes:
        unit: what was asked for.
        schedules: how many were judged.
        rows: their requests; fewer than asked for where the library refused or failed.
        worst_ratio: the largest difference over its noise.
        alarms: what was not exact.
        unsupported: the words with which the library refused; empty if it did not.
    """

    unit: SoakUnit
    schedules: int = 0
    rows: int = 0
    worst_ratio: float = 0.0
    alarms: tuple[Alarm, ...] = ()
    unsupported: str = ""


def clean(expectations: Expectations, engine: str, family: str) -> bool:
    """Whether no known defect of the library can show in a family's schedules."""
    return not any(
        entry.speaks_of(engine, family) and not _APART.issuperset(entry.verdicts)
        for entry in expectations.defects
        if "*" not in entry.families
    )


def soak(registry: Registry, unit: SoakUnit) -> Soaked:
    """Play random schedules on one family until ``unit.rows`` requests were judged."""
    engine = registry.engines[unit.engine]
    case = CaseId(unit.engine, unit.family, "soak", unit.dtype, unit.seed)
    rows, worst, count = 0, 0.0, 0
    alarms: list[Alarm] = []
    schedule = Schedule("soak", ())
    try:
        subject = Session(registry).subject(case)
        brief = brief_for(subject, engine, unit.seed)
        while rows < unit.rows:
            schedule = random_schedule(brief, unit.first + count)
            outcome = judge_batched(subject, engine, _SOAK, [schedule])
            refused = [f for f in outcome.findings if f.verdict is Verdict.UNSUPPORTED]
            if refused:
                return Soaked(unit, count, rows, worst, tuple(alarms), refused[0].what)
            count, rows = count + 1, rows + len(schedule.requests)
            worst = max(worst, outcome.numbers.ratio if outcome.numbers else 0.0)
            alarms += [
                alarm(unit, finding.verdict, finding.what, schedule)
                for finding in outcome.findings
                if not finding.verdict.good and finding.verdict is not Verdict.VACUOUS
            ]
    except Exception as error:  # noqa: BLE001 - whatever a library raises is a result
        failure = failure_of(error, "decoding one request alone")
        if failure.unsupported:
            return Soaked(unit, count, rows, worst, tuple(alarms), str(failure))
        alarms.append(alarm(unit, Verdict.CRASH, str(failure), schedule))
    return Soaked(unit, count, rows, worst, tuple(alarms))


def alarm(unit: SoakUnit, verdict: Verdict, what: str, schedule: Schedule) -> Alarm:
    """That what was found of a unit's schedule should not be."""
    about = (unit.engine, unit.family, unit.dtype, unit.seed)
    return Alarm(*about, verdict.value, what, schedule)


def random_schedule(brief: Brief, index: int) -> Schedule:
    """The schedule that the brief's seed and ``index`` decide."""
    rng = np.random.default_rng((brief.seed, index, 77))
    able = [name for name, need in NEEDS.items() if need in brief.capabilities]
    features = frozenset(name for name in able if rng.random() < 0.5)
    requests = [
        _request(brief, rng, f"r{number}", features)
        for number in range(int(rng.integers(1, _MOST_REQUESTS + 1)))
    ]
    arrivals = tuple(_arrivals(rng, requests, late=Feature.ARRIVALS in features))
    removals = tuple(_removals(rng, requests)) if Feature.REMOVALS in features else ()
    options: dict[str, Any] = {}
    if Feature.PIECES in features:
        options["prefill_step_size"] = PIECE
    if Feature.SLOTS in features:
        options["completion_batch_size"] = int(rng.choice((1, 2, 3)))
        options["prefill_batch_size"] = int(rng.choice((1, 2)))
    return Schedule(f"soak{index}", arrivals, removals, options=EngineOptions(**options))


def _request(
    brief: Brief, rng: np.random.Generator, name: str, features: frozenset[str]
) -> Request:
    more: dict[str, Any] = {"max_tokens": int(rng.integers(1, 7))}
    if Feature.SAMPLERS in features and rng.random() < 0.5:
        seed = int(rng.integers(0, 3))
        more["sampler"] = Sampler("seeded", {"temperature": 0.8, "seed": seed})
    if Feature.PROCESSORS in features and rng.random() < 0.5:
        penalty = {"repetition_penalty": 1.3, "repetition_context_size": 8}
        more["processors"] = (Processor("library", penalty),)
    length, variant = int(rng.choice(_LENGTHS)), int(rng.integers(0, _VARIANTS))
    request = ask(brief, name, length, variant=variant, **more)
    if Feature.STOP in features and rng.random() < 0.5 and request.max_tokens > 1:
        tokens = brief.solo(request, EngineOptions()).tokens
        at = int(rng.integers(0, len(tokens)))
        request = msgspec.structs.replace(request, stop=(tokens[at : at + 2],))
    return request


def _arrivals(
    rng: np.random.Generator, requests: list[Request], *, late: bool
) -> Iterator[Arrival]:
    left = list(requests)
    step = 0
    while left:
        count = int(rng.integers(1, len(left) + 1)) if late else len(left)
        yield Arrival(tuple(left[:count]), Trigger(count=step))
        left = left[count:]
        step += int(rng.integers(0, _LATEST_STEP))


def _removals(rng: np.random.Generator, requests: list[Request]) -> Iterator[Removal]:
    """Some requests, each in the queue, in prefill or while it decodes; it may be too late."""
    for request in requests:
        if rng.random() < 0.6:
            continue
        name = request.request_id
        when = (queued(name), in_prefill(name, 1), produced(name, 1), produced(name, 2))
        yield Removal((name,), when[int(rng.integers(0, len(when)))])


# A removal may come too late: nothing is promised of what a schedule reaches.
_SOAK = Scenario("soak", 0, "random schedules", frozenset(), lambda _: ())
