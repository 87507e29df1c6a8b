"""A schedule whose events happen at step numbers, as in a script."""

from __future__ import annotations

import msgspec

from conformance.core.schedule import Arrival, Probe, Removal, Schedule, Stage, Trigger
from conformance.core.trace import Trace


def by_steps(schedule: Schedule, trace: Trace) -> Schedule:
    """The schedule with each trigger replaced by the step before which it fired in ``trace``.

    A failed step is not in the trace; events that were due by then fired before it. Triggers that
    never fired are left out.
    """
    end = len(trace.steps)
    arrivals, removals, probes = [], [], []
    for arrival in schedule.arrivals:
        at = _first(trace, arrival)
        if at is not None or _due(trace, arrival.when):
            arrivals.append(msgspec.structs.replace(arrival, when=_at(end if at is None else at)))
    came = {request.request_id for arrival in arrivals for request in arrival.requests}
    for removal in schedule.removals:
        steps = [s.index for s in trace.steps if set(removal.request_ids) & set(s.removed_from)]
        if not steps and _due(trace, removal.when):
            steps = [end]
        if steps and came.issuperset(removal.request_ids):
            removals.append(msgspec.structs.replace(removal, when=_at(steps[0])))
    for probe in schedule.probes:
        steps = [s.index for s in trace.steps if any(p.kind == probe.kind for p in s.probes)]
        if steps:
            probes.append(msgspec.structs.replace(probe, when=_at(steps[0])))
    return msgspec.structs.replace(
        schedule, arrivals=tuple(arrivals), removals=tuple(removals), probes=tuple(probes)
    )


def events(schedule: Schedule) -> list[tuple[int, str, list[str]]]:
    """The events: before which step, ``insert`` or ``remove``, and the requests.

    Within a step, arrivals come first, except those that the schedule triggers by a removal;
    ``by_steps`` leaves none of those.
    """
    found = [
        (arrival.when.count, "insert", [r.request_id for r in arrival.requests])
        for arrival in schedule.arrivals
    ]
    found += [(r.when.count, "remove", list(r.request_ids)) for r in schedule.removals]
    return sorted(found, key=lambda event: event[0])


def last_step(schedule: Schedule) -> int:
    """The step before which the last event happens."""
    items: tuple[Arrival | Removal | Probe, ...]
    items = (*schedule.arrivals, *schedule.removals, *schedule.probes)
    return max((item.when.count for item in items), default=0)


def _first(trace: Trace, arrival: Arrival) -> int | None:
    name = arrival.requests[0].request_id
    return next((step.index for step in trace.steps if name in step.stages), None)


def _due(trace: Trace, trigger: Trigger) -> bool:
    """Whether the trigger fired after the last recorded step, before the one that failed."""
    name = trigger.request_id
    if trace.failure is None:
        return False
    if name is None:
        return trigger.count <= len(trace.steps)
    if trigger.stage is Stage.DECODE:
        return len(trace.stream(name).tokens) >= trigger.count
    if trigger.stage is Stage.PREFILL:
        done = sum(step.output.processed.get(name, 0) for step in trace.steps)
        return done >= max(trigger.count, 1) and not trace.stream(name).tokens
    if trigger.stage is Stage.REMOVED:
        removals = trace.schedule.removals
        return any(name in r.request_ids and _due(trace, r.when) for r in removals)
    return bool(trace.steps) and trace.steps[-1].stages.get(name) is trigger.stage


def _at(step: int) -> Trigger:
    return Trigger(None, Stage.DECODE, step)
