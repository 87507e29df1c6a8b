"""Shrinks a schedule by removing parts of it, after Hypothesis has shrunk its choices."""

from __future__ import annotations

import time
from collections.abc import Callable

from conformance.core.errors import ScheduleError
from conformance.core.schedule import Schedule, validate
from conformance.tools.explore.variants import changed, ingredients, variants

Size = tuple[int, ...]


def size(schedule: Schedule) -> Size:
    """The size of a schedule, compared field by field.

    Requests; events (removals, later arrivals); ingredients of requests and options; media; prompt
    tokens; output tokens; moments of events; distinct prompts.
    """
    requests = schedule.requests
    whens = [a.when for a in schedule.arrivals] + [r.when for r in schedule.removals]
    return (
        len(requests),
        len(schedule.removals) + len(schedule.arrivals),
        sum(map(ingredients, requests))
        + len(changed(schedule.options))
        + schedule.decode_on_other_thread,
        sum(len(r.media) for r in requests),
        sum(len(r.prompt) for r in requests),
        sum(r.max_tokens for r in requests),
        sum(when.count for when in whens),
        len({r.prompt for r in requests}),
    )


def smallest(schedule: Schedule, holds: Callable[[Schedule], bool], *, seconds: float) -> Schedule:
    """The smallest schedule for which ``holds`` is true, as far as time allows."""
    until = time.monotonic() + seconds
    better = True
    while better:
        better = False
        for candidate in variants(schedule):
            if time.monotonic() > until:
                return schedule
            if size(candidate) < size(schedule) and _valid(candidate) and holds(candidate):
                schedule, better = candidate, True
                break
    return schedule


def _valid(schedule: Schedule) -> bool:
    if not schedule.requests:
        return False
    try:
        validate(schedule)
    except ScheduleError:
        return False
    return True
