"""The ingredients of a failing schedule, and whether it fails without each of them.

An ingredient that cannot be removed without another change has no switch. Unlike a minimum
(``scenarios/smaller_schedules``), this says of each ingredient by itself whether it is needed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from conformance.core.engine import Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ConformanceError
from conformance.core.schedule import Arrival, Request, Schedule, Trigger
from conformance.core.verdict import CaseId, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.report.explanation import Ingredient, Needed
from conformance.run.judging.judge import Outcome, Until, judge_batched
from conformance.scenarios import Scenario

Change = Callable[[Schedule], Schedule]


@dataclass(frozen=True)
class Switch:
    """An ingredient of a schedule, how it is removed, and the function that removes it."""

    name: str
    how: str
    off: Change


def switches(schedule: Schedule, *, failing: str | None, window: int | None) -> tuple[Switch, ...]:
    """One switch for each ingredient that ``schedule`` has.

    Args:
        failing: the request with the wrong output, if there is one.
        window: the model's smallest sliding window.
    """
    every = (
        *_of_options(),
        *_of_requests(failing, window),
        Switch("join", "all requests arrive at the start", _arrive_at_once),
        Switch("removal", "nothing is removed", lambda s: replace(s, removals=())),
        Switch("probes", "no invalid call is made", lambda s: replace(s, probes=())),
        Switch(
            "thread",
            "decoded on the thread that loaded",
            lambda s: replace(s, decode_on_other_thread=False),
        ),
        Switch(
            "models",
            "no other model decodes in this process",
            lambda s: replace(s, beside_models=False),
        ),
    )
    return tuple(switch for switch in every if switch.off(schedule) != schedule)


def without(schedule: Schedule, chosen: Sequence[Switch]) -> Schedule:
    """The schedule with several ingredients off."""
    for switch in chosen:
        schedule = switch.off(schedule)
    return schedule


def _of_options() -> tuple[Switch, ...]:
    whole = EngineOptions()
    return (
        Switch(
            "chunks",
            "prompts in one piece",
            lambda s: _each(
                _options(s, prefill_step_size=whole.prefill_step_size),
                lambda r: replace(r, segments=()),
            ),
        ),
        Switch("waiting for a slot", "a slot for each request", _slots),
        Switch("quantization", "caches not quantized", lambda s: _options(s, kv=None)),
        Switch("drafting", "no drafter", lambda s: _options(s, drafting=None)),
        Switch("prefix cache", "no reuse of prefixes", lambda s: _options(s, prefix_caching=None)),
        Switch("bounded cache", "no max_kv_size", lambda s: _options(s, max_kv_size=None)),
    )


def _of_requests(failing: str | None, window: int | None) -> tuple[Switch, ...]:
    return (
        Switch("batch", "only the failing request", lambda s: _only(s, failing)),
        Switch("padding", "prompts cut to the shortest", _equal_lengths),
        Switch(
            "neighbours' content",
            "all prompts made of the same tokens",
            lambda s: _same_content(s, failing),
        ),
        Switch(
            "leaving early",
            "all produce the same number of tokens",
            lambda s: _each(
                s,
                lambda r: replace(r, max_tokens=max(q.max_tokens for q in s.requests)),
            ),
        ),
        Switch("window", "all fits into the window", lambda s: _inside(s, window)),
        Switch(
            "going on",
            "no request goes on from another's cache",
            lambda s: _plain(s, continues=None),
        ),
        Switch("samplers", "all greedy", lambda s: _plain(s, sampler=None)),
        Switch("processors", "no logits processors", lambda s: _plain(s, processors=())),
        Switch("stop sequences", "none", lambda s: _plain(s, stop=())),
    )


def _options(schedule: Schedule, **changes: object) -> Schedule:
    options = replace(schedule.options, **changes)
    return replace(schedule, options=options)


def _each(schedule: Schedule, change: Callable[[Request], Request]) -> Schedule:
    arrivals = tuple(
        replace(arrival, requests=tuple(change(r) for r in arrival.requests))
        for arrival in schedule.arrivals
    )
    return replace(schedule, arrivals=arrivals)


def _plain(schedule: Schedule, **changes: object) -> Schedule:
    return _each(schedule, lambda r: replace(r, **changes))


def _slots(schedule: Schedule) -> Schedule:
    count = len(schedule.requests)
    options = schedule.options
    return _options(
        schedule,
        prefill_batch_size=max(count, options.prefill_batch_size),
        completion_batch_size=max(count, options.completion_batch_size),
    )


def _arrive_at_once(schedule: Schedule) -> Schedule:
    if len(schedule.arrivals) < 2 or _linked(schedule):
        return schedule
    return replace(schedule, arrivals=(Arrival(schedule.requests),))


def _only(schedule: Schedule, failing: str | None) -> Schedule:
    """Only the failing request, or else the first, with the requests that it continues."""
    if len(schedule.requests) < 2:
        return schedule
    kept = [failing or schedule.requests[0].request_id]
    while (source := schedule.request(kept[-1]).continues) is not None:
        kept.append(source.request_id)
    if len(kept) == len(schedule.requests):
        return schedule
    arrivals = []
    for arrival in schedule.arrivals:
        requests = tuple(r for r in arrival.requests if r.request_id in kept)
        known = arrival.when.request_id in (None, *kept)
        if requests:
            arrivals.append(Arrival(requests, arrival.when if known else Trigger()))
    removals = tuple(
        replace(r, request_ids=names)
        for r in schedule.removals
        if (names := tuple(n for n in r.request_ids if n in kept))
        and r.when.request_id in (None, *kept)
    )
    probes = tuple(p for p in schedule.probes if p.when.request_id in (None, *kept))
    return replace(schedule, arrivals=tuple(arrivals), removals=removals, probes=probes)


def _equal_lengths(schedule: Schedule) -> Schedule:
    if _fixed(schedule):
        return schedule
    length = min(len(r.prompt) for r in schedule.requests)
    return _each(schedule, lambda r: _cut(r, length))


def _same_content(schedule: Schedule, failing: str | None) -> Schedule:
    """Fill every prompt with the failing request's tokens, keeping its length."""
    if _fixed(schedule) or len(schedule.requests) < 2:
        return schedule
    source = schedule.request(failing or schedule.requests[0].request_id).prompt
    return _each(
        schedule,
        lambda r: replace(
            r, prompt=tuple(itertools.islice(itertools.cycle(source), len(r.prompt)))
        ),
    )


def _inside(schedule: Schedule, window: int | None) -> Schedule:
    """Prompts are cut so that each request ends before the window is full."""
    if window is None or _fixed(schedule):
        return schedule
    room = {r.request_id: max(window - 1 - r.max_tokens, 1) for r in schedule.requests}
    return _each(schedule, lambda r: _cut(r, min(len(r.prompt), room[r.request_id])))


def _cut(request: Request, length: int) -> Request:
    if len(request.prompt) <= length:
        return request
    return replace(request, prompt=request.prompt[:length], segments=())


def _linked(schedule: Schedule) -> bool:
    return any(r.continues is not None for r in schedule.requests)


def _fixed(schedule: Schedule) -> bool:
    """Whether prompts cannot be cut because they hold media or continue other requests."""
    return _linked(schedule) or any(r.media for r in schedule.requests)


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

    def verdict(self, schedule: Schedule) -> Verdict:
        """The verdict on another schedule, without witnesses.

        The run stops at the first accusing finding. ``UNSUPPORTED`` is also the verdict if the
        changed schedule cannot be run.
        """
        try:
            return self._judged(
                schedule, self.engine, until=lambda found: any(map(accuses, found))
            ).verdict
        except ConformanceError:
            return Verdict.UNSUPPORTED

    def whole(self, engine: type[Engine] | None = None) -> Outcome:
        """The outcome of the schedule as a run judges it: in all its modes, without witnesses.

        Raises:
            ConformanceError: the engine cannot run it.
        """
        return self._judged(self.schedule, engine or self.engine)

    def _judged(
        self, schedule: Schedule, engine: type[Engine], until: Until | None = None
    ) -> Outcome:
        bare = dataclasses.replace(self.scenario, witnesses=())
        return judge_batched(self.subject, engine, bare, [schedule], until=until)


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
