"""Shrinks a schedule, one change at a time, as long as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ScheduleError
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Trigger, validate
from conformance.tools.explore.variants import with_requests, without_item

replace = msgspec.structs.replace


def smallest(
    schedule: Schedule, fails: Callable[[Schedule], bool], *, seconds: float
) -> tuple[Schedule, int]:
    """The smallest failing schedule that was found, and the number of schedules tried.

    The search is greedy: it continues with the first smaller schedule that fails, until none fails
    or time is up.

    Args:
        schedule: a failing schedule whose events all happen at step numbers.
        seconds: limit of the search, excluding the last trial.
    """
    end = time.monotonic() + seconds
    tried, shrunk = 0, True
    while shrunk:
        shrunk = False
        for candidate in candidates(schedule):
            if time.monotonic() > end:
                return schedule, tried
            tried += 1
            if fails(candidate):
                schedule, shrunk = candidate, True
                break
    return schedule, tried


def candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Valid schedules with one change, the largest reductions first."""
    for make in (_fewer_requests, _fewer_events, _plainer_options, _plainer_requests, _shorter):
        for candidate in make(schedule):
            try:
                yield validate(candidate)
            except ScheduleError:
                continue


def _fewer_requests(schedule: Schedule) -> Iterator[Schedule]:
    if len(schedule.requests) > 4:
        names = [request.request_id for request in schedule.requests]
        half = len(names) // 2
        yield _without(schedule, names[:half])
        yield _without(schedule, names[half:])
    if len(schedule.requests) > 1:
        for request in schedule.requests:
            yield _without(schedule, [request.request_id])


def _without(schedule: Schedule, names: list[str]) -> Schedule:
    arrivals = [
        replace(a, requests=tuple(r for r in a.requests if r.request_id not in names))
        for a in schedule.arrivals
    ]
    removals = [
        replace(r, request_ids=tuple(n for n in r.request_ids if n not in names))
        for r in schedule.removals
    ]
    return replace(
        schedule,
        arrivals=tuple(a for a in arrivals if a.requests),
        removals=tuple(r for r in removals if r.request_ids),
    )


def _fewer_events(schedule: Schedule) -> Iterator[Schedule]:
    for index in range(len(schedule.removals)):
        yield replace(schedule, removals=without_item(schedule.removals, index))
    for index in range(len(schedule.probes)):
        yield replace(schedule, probes=without_item(schedule.probes, index))
    if len(schedule.arrivals) > 1:
        yield replace(schedule, arrivals=(Arrival(schedule.requests),))
    for index, arrival in enumerate(schedule.arrivals):
        for count in _fewer(arrival.when.count, least=0):
            moved = replace(arrival, when=Trigger(count=count))
            yield replace(schedule, arrivals=_put(schedule.arrivals, index, moved))
    for index, removal in enumerate(schedule.removals):
        for count in _fewer(removal.when.count, least=0):
            gone: Removal = replace(removal, when=Trigger(count=count))
            yield replace(schedule, removals=_put(schedule.removals, index, gone))


def _plainer_options(schedule: Schedule) -> Iterator[Schedule]:
    plain = EngineOptions()
    if schedule.decode_on_other_thread:
        yield replace(schedule, decode_on_other_thread=False)
    if schedule.weigh is not None:
        yield replace(schedule, weigh=None)
    for name in plain.__struct_fields__:
        default = getattr(plain, name)
        if getattr(schedule.options, name) != default:
            yield replace(schedule, options=replace(schedule.options, **{name: default}))


def _plainer_requests(schedule: Schedule) -> Iterator[Schedule]:
    for request in schedule.requests:
        for name, default in (
            ("sampler", None),
            ("stop", ()),
            ("segments", ()),
            ("continues", None),
        ):
            if getattr(request, name) != default:
                yield with_requests(schedule, replace(request, **{name: default}))
        if request.processors:
            yield with_requests(schedule, replace(request, processors=()))


def _shorter(schedule: Schedule) -> Iterator[Schedule]:
    for request in schedule.requests:
        for count in _fewer(request.max_tokens, least=1):
            yield with_requests(schedule, replace(request, max_tokens=count))
    for request in schedule.requests:
        for length in _fewer(len(request.prompt), least=1):
            if not request.media:
                yield with_requests(
                    schedule, replace(request, prompt=request.prompt[:length], segments=())
                )
        if request.media:
            yield from _less_text(schedule, request)


def _less_text(schedule: Schedule, request: Request) -> Iterator[Schedule]:
    """Shorter texts after the last medium, cut by halves and by one token."""
    end = max(media.span[1] for media in request.media)
    for length in _fewer(len(request.prompt), least=end):
        yield with_requests(schedule, replace(request, prompt=request.prompt[:length]))


def _fewer(count: int, *, least: int) -> Iterator[int]:
    """Numbers below ``count``: the least, then halfway, then one less."""
    yield from dict.fromkeys(
        number for number in (least, (least + count) // 2, count - 1) if least <= number < count
    )


def _put(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])
